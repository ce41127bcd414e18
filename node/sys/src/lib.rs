//! Kernel facilities behind narrow traits.
//!
//! Everything a node component asks of the kernel goes through here: starting programs ([`exec`]), work that may
//! block ([`blocking`]), knowing a process again after a restart ([`process`]) and keeping it running ([`supervise`]),
//! mounts ([`mount`]) and their options ([`mount_flags`]), the mount namespace of the containers ([`mount_namespace`]), pod cgroups of both versions
//! ([`cgroup`]), entering a namespace ([`namespace`]), netlink ([`netlink`]) with elements of nftables ([`nftables`]),
//! news of its tables ([`nftables_watch`], [`nftables_guard`]), flows ([`conntrack`]), routes ([`routes`]) and links of pods ([`links`]), ownership
//! and atomic files ([`fs`]), changes in folders ([`folder_events`]),
//! figures of processes, links and disks ([`proc_figures`]), messages over D-Bus ([`dbus`]) to logind ([`logind`])
//! and systemd ([`systemd`]), records of the kernel's log
//! ([`kernel_log`]),
//! what the machine is ([`machine`]), what it has left ([`vitals`]) and what it allows us ([`limits`]).
//!
//! On the node, only here may a block say `unsafe`. Nothing here knows what a pod is.

pub mod blocking;
pub mod cgroup;
pub mod conntrack;
pub mod dbus;
mod detached_mount;
pub mod exec;
pub mod folder_events;
pub mod fs;
pub mod kernel_log;
pub mod limits;
pub mod links;
pub mod logind;
pub mod machine;
pub mod mount;
pub mod mount_flags;
pub mod mount_namespace;
pub mod namespace;
pub mod netlink;
pub mod nftables;
pub mod nftables_guard;
pub mod nftables_watch;
pub mod proc_figures;
pub mod process;
pub mod resolv_conf;
pub mod routes;
pub mod supervise;
pub mod systemd;
pub mod vitals;

pub use exec::{CommandOutput, CommandSpec, Exec, ExecError, SystemExec};
