//! OOM kills in the kernel's log: an event `SystemOOM` of the node for each that no limit of a group has caused
//! (upstream's `pkg/kubelet/oom`).
//!
//! [`watcher`] reads the log, [`parsing`] knows its lines. Records of programs are left out: a pod that may write to `/dev/kmsg` makes
//! no event. Ends of containers by their own limits are counted by their groups (`container_oom_events_total`).

mod parsing;
mod seen;
pub(crate) mod watcher;
