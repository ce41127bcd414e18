//! The node agent: pod workers and the features around them.
