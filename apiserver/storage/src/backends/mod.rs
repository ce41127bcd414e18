//! The backends, one row each. `log` is the default; `etcd` is chosen by `--etcd-servers`.

pub mod etcd;
pub mod log;
