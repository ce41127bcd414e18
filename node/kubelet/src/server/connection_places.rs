//! ConnectionPlaces of the connections of port 10250, for three kinds of clients: half of them for those known by certificate, a quarter for
//! tokens that were admitted, a quarter for unknown ones.
//!
//! A connection counts as unknown until its client is known. All pods of another node come from one address, and so have the
//! share of one unknown client; a client among them whose token is authorized leaves that share with its first request.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;

use machinery_runtime::{CancellationToken, ConnectionSlot, ConnectionSlots};

use super::known_slots::KnownSlots;
use super::routes::Caller;

/// All places.
#[derive(Debug, Clone)]
pub(super) struct ConnectionPlaces {
    anonymous: Arc<ConnectionSlots>,
    tokens: Arc<KnownSlots>,
    certificates: Arc<KnownSlots>,
}

/// The place of one connection.
#[derive(Debug)]
pub(super) struct ConnectionPlace {
    slot: ConnectionSlot,
    all: ConnectionPlaces,
}

impl ConnectionPlaces {
    /// Makes so many places.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            anonymous: ConnectionSlots::new(limit / 4),
            tokens: KnownSlots::new(limit / 4),
            certificates: KnownSlots::new(limit.div_ceil(2)),
        }
    }

    /// Returns the place of a connection from this address, whose client has shown nothing yet.
    pub(super) fn for_anonymous(&self, address: IpAddr) -> ConnectionPlace {
        ConnectionPlace {
            slot: self.anonymous.enter(address),
            all: self.clone(),
        }
    }
}

impl ConnectionPlace {
    /// Cancelled when the connection gives way to another.
    pub(super) fn closing(&self) -> &CancellationToken {
        &self.slot.closing
    }

    /// Serves the connection of a client known by its certificate, where its user's share has a place.
    pub(super) async fn hold_known(self, user: &str, caller: &Caller, serving: impl Future<Output = ()>) {
        let certificates = &self.all.certificates;
        let Some(own) = certificates.enter(user, caller.address, &caller.requests) else {
            return tracing::debug!(address = %caller.address, user, "connection limit reached, refusing a connection");
        };
        drop(self);
        own.closing.run_until_cancelled(serving).await;
    }

    /// Serves another connection, in the place of a token's user from the first request on that is admitted.
    pub(super) async fn hold(self, caller: &Caller, serving: impl Future<Output = ()>) {
        let mut serving = pin!(serving);
        let closing = self.slot.closing.clone();
        let admitted = caller.admitted.wait_for(Option::is_some);
        let user = tokio::select! { biased;
            () = closing.cancelled() => return,
            user = admitted => user.unwrap_or_default(),
            () = &mut serving => return,
        };
        let own = self.all.tokens.enter(&user, caller.address, &caller.requests);
        let Some(own) = own else {
            closing.run_until_cancelled(serving).await;
            return;
        };
        drop(self);
        own.closing.run_until_cancelled(serving).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_runtime::{Runtime, Simulation, TaskHandle, Watched};
    use std::time::Duration;

    const NODE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn caller() -> Arc<Caller> {
        Arc::new(Caller {
            peer: None,
            address: NODE,
            requests: super::super::requests::OpenRequests::default(),
            admitted: Arc::new(Watched::new(None)),
        })
    }

    /// A connection that its client keeps for ever.
    fn held(runtime: &Runtime, places: &ConnectionPlaces, caller: &Arc<Caller>) -> TaskHandle<()> {
        let (place, caller) = (places.for_anonymous(NODE), Arc::clone(caller));
        runtime.spawn("connection", async move {
            place.hold(&caller, std::future::pending()).await;
        })
    }

    #[test]
    fn connection_of_an_admitted_token_leaves_the_share_of_its_address() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let places = ConnectionPlaces::new(64);
            let (monitor, other) = (caller(), caller());
            let (held, lost) = (held(&runtime, &places, &monitor), held(&runtime, &places, &other));
            runtime.sleep(Duration::from_secs(1)).await;
            monitor.admitted.replace(Some("monitor".to_owned()));
            runtime.sleep(Duration::from_secs(1)).await;
            let crowd: Vec<ConnectionPlace> = (0..1_000).map(|_| places.for_anonymous(NODE)).collect();
            runtime.sleep(Duration::from_secs(1)).await;
            assert!(
                lost.is_finished(),
                "strangers of one address give way to one another"
            );
            assert!(!held.is_finished());
            drop(crowd);
        });
    }
}
