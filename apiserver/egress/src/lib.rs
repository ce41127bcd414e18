//! Connections the API server opens: to kubelets with its certificate, to pods and services without; webhooks and aggregated
//! servers will come through here too.
//!
//! [`Dialer::send`] opens a connection, sends one HTTP/1.1 request and gives the answer; where the answer is a switch of
//! protocols (WebSocket, SPDY), [`tunnel`] joins the two upgraded connections byte by byte and understands none of it.
//! Connecting and the handshake have time limits; an answer may take as long as whoever asked waits. Certificates come from whoever makes the [`Dialer`].

mod dialer;
mod tunnel;

pub use dialer::{Destination, Dialer, EgressError, OutgoingBody, Security};
pub use tunnel::tunnel;
