//! SPDY/3.1, as much of it as `kubectl` and containerd speak.
//!
//! [`frame`] turns bytes into frames and back, pure; [`headers`] has the compressed header blocks;
//! [`session`] runs a connection: streams opened by either side, data both ways, half-closed ends.
//! [`streams`] counts those that have not ended.
//! Flow control is left out, as it is by every other implementation in this field: windows are
//! announced and ignored. A stream holds back its connection when its reader is slow (decision 0083).

pub(crate) mod frame;
pub(crate) mod headers;
pub(crate) mod session;
mod streams;
