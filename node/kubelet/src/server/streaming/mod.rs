//! Connections taken over: exec, attach and port-forward.
//!
//! A client may speak WebSocket (`v5` or `v4.channel.k8s.io`, older forms and base64, and for port-forward SPDY inside a
//! WebSocket) or SPDY/3.1 directly. Either becomes the same [`Channels`]: input, output, errors, a
//! verdict, terminal sizes. [`session`] takes the connection over; [`exec`](mod@exec) joins it to a process of
//! containerd's task service, [`attach`](mod@attach) to what the runtime's own streaming server offers; [`port_forward`](mod@port_forward) joins SPDY streams to
//! connections inside the pod's network namespace. Each pod has a bounded number of [`stream_slots`] for them,
//! and what a client has sent and the container has not read is bounded for each connection ([`unread`]).

mod attach;
mod channels;
mod connects;
mod exec;
mod idle;
mod pieces;
mod port_channels;
mod port_forward;
mod session;
pub(crate) mod spdy;
mod spdy_channels;
mod stream_slots;
mod terminal_sizes;
mod unread;
mod upgrade;
mod websocket;

pub(super) use attach::attach;
pub(super) use exec::exec;
pub(super) use idle::IDLE_TIMEOUT;
pub(super) use port_forward::port_forward;
pub(super) use session::{Target, running_container};
pub(super) use stream_slots::{StreamSlot, StreamSlots};
