//! APIs between a node's agent and other programs of its machine, over unix sockets: [`plugin_registration`], by which a program
//! says what it is, [`csi`], by which one shows volumes, [`device_plugin`] and [`dra`], by which one offers devices, and
//! [`pod_resources`], by which the agent says which pod has them.
//!
//! Messages have the names and numbers of upstream's (`k8s.io/kubelet/pkg/apis`, `csi.proto`), so that stock programs work unchanged.
//! [`calls`] carries them, from either side; a [`calls::Transport`] is a connection, or the program itself in a test.
//!
//! Nothing here knows what a device is for, or which pod may have it.

mod authority;
pub mod calls;
pub mod csi;
pub mod device_plugin;
pub mod dra;
pub mod plugin_registration;
pub mod pod_resources;
