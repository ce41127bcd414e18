//! A client of D-Bus, as small as the node's use of it: method calls with basic values and the arrays that systemd takes,
//! signals, and handles of files that come with an answer.
//!
//! [`address`] says where the bus is, [`message`] and [`writer`] have the form of messages (pure), [`connection`] sends and receives them. A
//! message has [`message::BYTES_MAX`] bytes at most, unread signals are bounded by number, and a call has a
//! deadline (decision 0121).
//!
//! Never: a value read inside of a value, but for a variant, as properties are; an object of our own on the bus.

mod address;
mod connection;
mod message;
mod value;
mod writer;

/// Bus of a machine whose environment names none.
pub const SYSTEM_BUS: &str =
    "unix:path=/run/dbus/system_bus_socket;unix:path=/var/run/dbus/system_bus_socket";

pub use connection::{Connection, DbusError, Reply};
pub use message::{Call, Message};
pub use value::Value;
