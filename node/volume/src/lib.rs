//! Volume types of a pod.
