//! Ports of the node that lead to pods: `hostPort` of containers, in an nftables table of its own.
//!
//! The worker of a pod holds the pod's ports when its sandbox is ready and releases them before the sandbox is stopped
//! ([`keeper`]). Claims of all pods ([`mod@claims`]) become elements of two maps: ports of one address, and ports of every
//! address of the node ([`mod@table`]); what differs from before is one transaction ([`kernel`]). A port that another pod
//! has, or that a program of the node listens on ([`listeners`]), is refused, and no other pod takes it over.
//!
//! An agent that starts reads the table that the agent before it left, so that no connection fails in between; what no
//! pod has claimed once all were looked at goes, and with it what CNI's `portmap` left ([`portmap`]).
//!
//! Not here: IPv6.

pub mod claims;
pub mod flows;
pub mod keeper;
pub mod kernel;
pub mod listeners;
pub mod portmap;
pub mod ports;
pub mod table;

pub use keeper::{HostPortError, HostPorts};
pub use kernel::{HostPortKernel, LinuxHostPorts};
pub use ports::{HostPort, HostPortsConfig, PortKey, Protocol, Target};
