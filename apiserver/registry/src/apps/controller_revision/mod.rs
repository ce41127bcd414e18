//! ControllerRevision: what a DaemonSet or StatefulSet once was.

pub mod validation;
