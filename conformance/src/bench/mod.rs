//! Load on an API server, and what it costs the server.
//!
//! Everything here knows only the API: it works on Knarr and on upstream alike, so that both stand in one table.
//! [`connection`] is the client (one connection per client, TLS, client certificate), [`process`] reads what
//! a server process has used, [`server`] starts and kills it, [`load`] runs a piece of work by N clients, as fast as they can or at a rate, and sums up, [`scenarios`] is the list of
//! what is measured. [`node`] measures a server with its node, and beside it what the container runtime takes without
//! us ([`runtime`]). The client's own CPU is never counted.

mod applies;
pub mod connection;
pub mod load;
pub mod node;
pub mod process;
mod rates;
pub mod rollout;
pub mod runtime;
pub mod scenarios;
mod schedule;
pub mod server;
pub(crate) mod watch;
