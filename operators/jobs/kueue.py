"""What Kueue reads off a job: queue, priority, longest run, topology. Pure.

Gang admission, quotas, borrowing and placement are Kueue's business; nothing here waits or decides.
"""

from __future__ import annotations

from operators.jobs.contract import TorchJob

QUEUE = "kueue.x-k8s.io/queue-name"
PRIORITY = "kueue.x-k8s.io/priority-class"
LONGEST = "kueue.x-k8s.io/max-exec-time-seconds"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
NODE, NVLINK_DOMAIN = "kubernetes.io/hostname", "nvidia.com/gpu.clique"


def labels(job: TorchJob) -> dict[str, str]:
    """Labels of the object that is admitted as a whole; none without a queue.

    The longest run is told to Kueue because a Job's own deadline begins anew each time that it is resumed.
    """
    if not job.queue:
        return {}
    priority = {PRIORITY: job.priority} if job.priority else {}
    return {QUEUE: job.queue, LONGEST: str(int(job.deadline.total_seconds())), **priority}


def pod_annotations(job: TorchJob, rack: str) -> dict[str, str]:
    """Annotations of the pods; ``rack`` is the node label that names the rack on this cluster.

    ``any`` asks for nothing: a request for topology cannot be met on nodes that have none declared.
    """
    if job.gpu_topology == "any":
        return {}
    one_node = job.gpu_topology == "same-node" or (job.gpu_topology == "nvlink" and job.nodes == 1)
    return {REQUIRED: NODE if one_node else NVLINK_DOMAIN if job.gpu_topology == "nvlink" else rack}
