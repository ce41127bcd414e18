//! Connections the API server opens: to kubelets with its certificate, to pods and services without, to webhooks, which
//! [`HookClient`] calls, to API extensions, to which [`ExtensionClient`] passes requests on, and to servers that the operator's
//! files name ([`Remote`]): issuers of tokens, webhooks that authenticate and authorize.
//!
//! [`Dialer::send`] opens a connection, sends one HTTP/1.1 request and gives the answer; where the answer is a switch of
//! protocols (WebSocket, SPDY), [`tunnel`] joins the two upgraded connections byte by byte and understands none of it.
//! Connecting, the handshake and the beginning of an answer have time limits; the rest of an answer may take as long as the
//! client waits. A [`AllowedAddresses`] says which addresses a destination may have, however it is named. Certificates come from the
//! maker of the [`Dialer`].

mod address;
mod dialer;
mod exchange;
mod extensions;
mod hooks;
mod pool;
mod remote;
pub mod service;
mod trust;
mod tunnel;
mod turned_away;

pub use hyper::body::Bytes;

pub use address::{AllowedAddresses, OwnAddresses};
pub use dialer::{Destination, Dialer, EgressError, OutgoingBody, Security};
pub use extensions::{
    ExtensionAnswer, ExtensionClient, ExtensionError, ExtensionTarget, FORWARDED_HOST, FORWARDED_PROTO,
};
pub use hooks::{
    CallGate, CredentialsByHost, HookCall, HookClient, HookCredentials, HookError, HookPlace, HookTarget,
    TargetError, answer_message,
};
pub use remote::{Remote, RemoteAccess, RemoteAnswer, RemoteError, RemoteOptions};
pub use trust::{ClientIdentity, Trusted};
pub use tunnel::tunnel;
pub use turned_away::TurnedAway;
