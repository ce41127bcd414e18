//! An etcd in memory, for tests: etcd's messages, its answers, and no more than its guarantees.
//!
//! [`Etcd::transport`] stands where `etcd-client` has its connections, so the product's own code and the real client
//! above it are what runs. A request is decoded by tonic's server half ([`serve`]); a write is agreed on and applied by
//! every member in its own time ([`members`], [`store`]); a watch is a stream of its own ([`stream`], [`watchers`]).
//! With a simulated runtime the seed decides the [`FaultProfile`]: delays, lost answers, broken streams, members that are
//! behind or cut off, slow readers that become victims, and watchers that are too late for a compaction.
//!
//! Requests that it does not know it refuses by name. Its likeness is shown beside the backend that uses it: the same
//! operations on a real etcd get the same answers.

mod fault_profile;
mod members;
mod messages;
mod refusals;
mod serve;
mod signal;
mod store;
mod stream;
mod watchers;

pub use fault_profile::FaultProfile;

use etcd_client::{BalancedChannelBuilder, Channel};
use fault_profile::FaultInjector;
use machinery_runtime::{Runtime, Scope};
use members::Members;
use messages::EventType;
use signal::Signal;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc;
use tonic::transport::{Endpoint, channel::Change};
use tower::util::BoxCloneSyncService;

/// A cluster of members. Dropping it ends everything that belongs to it.
#[derive(Debug)]
pub struct Etcd {
    members: Arc<Members>,
    _scope: Scope,
}

/// A change of a key at a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    pub revision: i64,
    pub key: Vec<u8>,
    /// Nothing when it was deleted.
    pub value: Option<Vec<u8>>,
}

/// A state to go back to: so many commands.
#[derive(Debug, Clone, Copy)]
pub struct Backup(usize);

/// The way to an [`Etcd`], in place of connections.
#[derive(Debug, Clone)]
pub struct Transport {
    members: Arc<Members>,
    /// Nothing passes.
    cut: Arc<Signal<bool>>,
}

impl Etcd {
    /// An empty etcd at revision one.
    pub fn start(runtime: &Runtime, faults: FaultProfile) -> Self {
        let scope = runtime.child_scope();
        let felt = FaultInjector {
            runtime: scope.runtime().clone(),
            faults,
        };
        Self {
            members: Members::start(felt),
            _scope: scope,
        }
    }

    /// A transport to this etcd for a client; requests to any endpoint arrive here.
    pub fn transport(&self) -> Transport {
        Transport {
            members: Arc::clone(&self.members),
            cut: Arc::new(Signal::new(false)),
        }
    }

    /// The last revision that the members have agreed on.
    pub fn revision(&self) -> i64 {
        self.members.revision()
    }

    /// Number of watches of its members.
    pub fn watches(&self) -> usize {
        self.members.watches()
    }

    /// Number of requests answered, without watches.
    pub fn requests(&self) -> usize {
        self.members.requests.load(Ordering::Relaxed)
    }

    /// Every change after a revision, in order, whether or not it has been compacted.
    pub fn changes_after(&self, revision: i64) -> Vec<Changed> {
        let changes = self.members.changes_after(revision);
        let named = changes.into_iter().filter_map(|(revision, event)| {
            let deleted = event.kind() == EventType::Delete;
            let kv = event.kv?;
            Some(Changed {
                revision,
                key: kv.key,
                value: (!deleted).then_some(kv.value),
            })
        });
        named.collect()
    }

    /// A backup of everything agreed on so far.
    pub fn backup(&self) -> Backup {
        Backup(self.members.agreed())
    }

    /// Goes back to a backup: what came after it never happened, and every stream breaks.
    pub fn restore(&self, backup: Backup) {
        self.members.restore(backup.0);
    }

    /// Cuts every member off from the others: none has a leader until it is undone.
    pub fn cut_off(&self, cut_off: bool) {
        for member in 0..self.members.felt.faults.members {
            self.members.cut_off(member, cut_off);
        }
    }
}

impl Transport {
    /// Cuts this client off from etcd, or lets it through again; other clients are not concerned.
    pub fn cut(&self, cut: bool) {
        self.cut.set(cut);
    }
}

impl BalancedChannelBuilder for Transport {
    type Error = etcd_client::Error;

    fn balanced_channel(
        self,
        buffer: usize,
    ) -> Result<(Channel, mpsc::Sender<Change<http::Uri, Endpoint>>), Self::Error> {
        // The client names its endpoints here; they are not read, but the channel has to be open.
        let (endpoints, named) = mpsc::channel(buffer);
        let named = Arc::new(named);
        let service = tower::service_fn(move |request| {
            let (members, _kept) = (Arc::clone(&self.members), &named);
            let cut = Arc::clone(&self.cut);
            async move { Ok::<_, Infallible>(serve::serve(members, cut, request).await) }
        });
        let service = tower::ServiceExt::map_err(service, |never: Infallible| match never {});
        Ok((Channel::Custom(BoxCloneSyncService::new(service)), endpoints))
    }
}
