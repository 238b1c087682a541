"""Training jobs: what is declared, how it is rendered, the states it passes through, and what it costs."""
