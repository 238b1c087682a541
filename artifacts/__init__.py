"""What every payload needs and none owns: references, the store, the step door, the clock and the records."""
