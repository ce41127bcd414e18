//! This node as an object: registered once, renewed by its lease, its status written when it changes.
//!
//! [`facts`] says what the machine offers, [`registration`] makes or adopts the Node object, [`lease`]
//! says every ten seconds that we live, [`status`] writes conditions and images when they change, [`pressure`] has what it runs short of,
//! [`schedulable`] records when it is cordoned.

pub(crate) mod components;
pub mod facts;
pub(crate) mod lease;
pub(crate) mod pressure;
pub(crate) mod registration;
pub mod reserve;
pub(crate) mod schedulable;
pub(crate) mod status;
pub mod taints;
