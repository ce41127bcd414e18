//! The plugin's commands, over leases and links. All of it blocks.

use super::answers::{self, Answer};
use super::call::{
    self, Attachment, CHANGED, Call, CniError, Command, DUPLICATE, INPUT_OUTPUT, Kind, NETWORK,
    NOT_AVAILABLE, Owner, TRY_AGAIN_LATER, error,
};
use super::collector::Unlisted;
use super::leases::{LeaseError, Leases, gateway};
use super::links::{PodLink, PodLinks, near_name};
use ipnet::Ipv4Net;
use serde_json::Value;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of locks; containers are dealt to them by a hash of their names.
const TURNS: usize = 64;

/// See the module.
#[derive(Debug)]
pub struct Plugin {
    leases: Mutex<Leases>,
    links: Arc<dyn PodLinks>,
    /// Commands for one container run one at a time: a runtime whose addition timed out deletes at once.
    turns: [Mutex<()>; TURNS],
    pub(super) unlisted: Mutex<Unlisted>,
}

/// Locks, poisoned or not: a panic leaves files and links, and every operation reads those again.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Plugin {
    /// A plugin whose leases are below this folder.
    pub fn new(state: &Path, links: Arc<dyn PodLinks>) -> Self {
        Self {
            leases: Mutex::new(Leases::new(state.join(NETWORK))),
            links,
            turns: std::array::from_fn(|_| Mutex::new(())),
            unlisted: Mutex::default(),
        }
    }

    /// Answers the body of a request.
    pub(super) fn answer(&self, body: &[u8]) -> Answer {
        let called = Call::read(body);
        let version = called
            .as_ref()
            .map_or_else(|_| call::version_of(body), |call| call.version);
        Answer::of(called.and_then(|call| self.run(&call)), version)
    }

    /// Deletes what an addition has made, for a runtime that closed its connection before it read the answer.
    pub(super) fn undo(&self, body: &[u8]) {
        if let Ok(Call {
            command: Command::Add(attachment),
            kind: Kind::Link { .. },
            ..
        }) = Call::read(body)
            && let Err(error) = self.delete(&attachment.owner, attachment.namespace.as_deref())
        {
            tracing::debug!(%error, "link of an abandoned addition was not removed");
        }
    }

    fn run(&self, call: &Call) -> Result<Option<Value>, CniError> {
        match (&call.command, &call.kind) {
            (Command::Version, _) => Ok(Some(answers::versions(call.version))),
            (Command::Add(attachment), Kind::Loopback) => self.add_loopback(call, attachment),
            (Command::Check(attachment), Kind::Loopback) => self.add_loopback(call, attachment).map(|_| None),
            // It goes with its namespace.
            (_, Kind::Loopback) => Ok(None),
            (Command::Add(attachment), Kind::Link { range, mtu }) => {
                self.add(call.version, attachment, *range, *mtu).map(Some)
            }
            (Command::Delete(attachment), Kind::Link { .. }) => self
                .delete(&attachment.owner, attachment.namespace.as_deref())
                .map(|()| None),
            (Command::Check(attachment), Kind::Link { range, mtu }) => {
                self.check(attachment, *range, *mtu).map(|()| None)
            }
            (Command::Collect(valid), Kind::Link { .. }) => self.retain(valid).map(|()| None),
            (Command::Status, Kind::Link { range, .. }) => self.status(*range).map(|()| None),
        }
    }

    fn add_loopback(&self, call: &Call, attachment: &Attachment) -> Result<Option<Value>, CniError> {
        let namespace = namespace_of(attachment)?;
        let addresses = self.links.set_loopback_up(namespace);
        let addresses = addresses.map_err(|cause| failed("setting the loopback link up", cause))?;
        let result = || answers::loopback(call.version, attachment, &addresses);
        Ok(Some(call.previous.clone().unwrap_or_else(result)))
    }

    fn add(
        &self,
        version: &str,
        attachment: &Attachment,
        range: Ipv4Net,
        mtu: Option<u32>,
    ) -> Result<Value, CniError> {
        let owner = &attachment.owner;
        let namespace = namespace_of(attachment)?;
        let _turn = self.turn(&owner.container);
        // Before the lease: the collector would take a lease without a link for a remnant of an earlier agent.
        lock(&self.unlisted).begun(owner);
        // The lock of leases is not held while the link is made, which takes milliseconds of the kernel's;
        // additions of other containers go on.
        let address = lock(&self.leases)
            .take(range, owner)
            .map_err(|cause| not_leased(&cause))?;
        let near = near_name(&owner.container, &owner.interface);
        let link = PodLink {
            near: &near,
            interface: &owner.interface,
            namespace,
            address,
            gateway: gateway(range),
            range,
            mtu,
        };
        match self.links.add(&link) {
            Ok(ends) => Ok(answers::link(version, attachment, &near, &ends, (address, range))),
            Err(cause) => {
                // Where the link stays the lease does, too: it is what the deletion that follows, or the collector, knows it by.
                let undone = self.remove(owner, None);
                undone
                    .inspect_err(|error| tracing::debug!(%error, "half a link of a pod stays"))
                    .ok();
                Err(failed("making the pod's link", cause))
            }
        }
    }

    /// Removes the link, and then its lease: an address is free once no link leads to it. Absent ones count as deleted. Without a
    /// namespace a link that another plugin made is found by the route to its address.
    pub(super) fn delete(&self, owner: &Owner, namespace: Option<&Path>) -> Result<(), CniError> {
        let _turn = self.turn(&owner.container);
        // The runtime's namespace is gone, and with it the far end; a link by another plugin has a name that is
        // not derived from the owner.
        if namespace.is_none() {
            let addresses = lock(&self.leases).of(owner);
            for address in addresses.map_err(|cause| failed("reading leases of addresses", cause))? {
                let removed = self.links.remove_to(address);
                removed.map_err(|cause| failed("removing the link to an address", cause))?;
            }
        }
        self.remove(owner, namespace)
    }

    /// The same, for callers that hold the container's lock.
    fn remove(&self, owner: &Owner, namespace: Option<&Path>) -> Result<(), CniError> {
        let near = near_name(&owner.container, &owner.interface);
        let end = namespace.map(|namespace| (namespace, owner.interface.as_str()));
        self.links
            .remove(&near, end)
            .map_err(|cause| failed("removing the pod's link", cause))?;
        let released = lock(&self.leases).release_all(owner);
        released.map_err(|cause| failed("releasing the pod's address", cause))?;
        lock(&self.unlisted).ended(owner);
        Ok(())
    }

    fn check(&self, attachment: &Attachment, range: Ipv4Net, mtu: Option<u32>) -> Result<(), CniError> {
        let owner = &attachment.owner;
        let _turn = self.turn(&owner.container);
        let addresses = lock(&self.leases).of(owner);
        let addresses = addresses.map_err(|cause| failed("reading leases of addresses", cause))?;
        let Some(address) = addresses.first() else {
            return Err(error(CHANGED, "the pod has no address", &owner.container));
        };
        let near = near_name(&owner.container, &owner.interface);
        let link = PodLink {
            near: &near,
            interface: &owner.interface,
            namespace: namespace_of(attachment)?,
            address: *address,
            gateway: gateway(range),
            range,
            mtu,
        };
        match self.links.missing(&link) {
            Ok(None) => Ok(()),
            Ok(Some(missing)) => Err(error(CHANGED, "the pod's link has changed", missing)),
            Err(cause) => Err(failed("looking at the pod's link", cause)),
        }
    }

    /// GC: removes all but these. One that fails stops no other.
    fn retain(&self, valid: &[Owner]) -> Result<(), CniError> {
        let valid: BTreeSet<&Owner> = valid.iter().collect();
        // Unreadable leases have an owner without a name, which no valid attachment has: GC removes them too.
        let owners: BTreeSet<Owner> = self.leased()?.into_values().collect();
        let gone = owners.iter().filter(|owner| !valid.contains(owner));
        let failures = gone.filter_map(|owner| self.delete(owner, None).err());
        failures.last().map_or(Ok(()), Err)
    }

    fn status(&self, range: Ipv4Net) -> Result<(), CniError> {
        match lock(&self.leases).has_room(range) {
            Ok(true) => Ok(()),
            Ok(false) => Err(error(
                NOT_AVAILABLE,
                "every address of the range is in use",
                range,
            )),
            Err(cause) => Err(error(NOT_AVAILABLE, "reading leases of addresses", cause)),
        }
    }

    /// All leases.
    pub(super) fn leased(&self) -> Result<BTreeMap<Ipv4Addr, Owner>, CniError> {
        let mut leases = lock(&self.leases);
        let all = leases.all().cloned();
        all.map_err(|cause| failed("reading leases of addresses", cause))
    }

    /// Addresses that the node has a link to.
    pub(super) fn reached(&self) -> std::io::Result<BTreeSet<Ipv4Addr>> {
        self.links.reached()
    }

    fn turn(&self, container: &str) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        container.hash(&mut hasher);
        let count = u64::try_from(TURNS).unwrap_or(1);
        let index = usize::try_from(hasher.finish() % count).unwrap_or_default();
        lock(&self.turns[index])
    }
}

fn namespace_of(attachment: &Attachment) -> Result<&Path, CniError> {
    let missing = || error(call::INVALID_ENVIRONMENT, "CNI_NETNS is missing", "");
    attachment.namespace.as_deref().ok_or_else(missing)
}

fn failed(doing: &str, cause: std::io::Error) -> CniError {
    let mut details = cause.to_string();
    let mut source = std::error::Error::source(&cause);
    while let Some(cause) = source {
        details.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    error(INPUT_OUTPUT, doing, details)
}

fn not_leased(cause: &LeaseError) -> CniError {
    match cause {
        LeaseError::Duplicate(..) => error(DUPLICATE, cause.to_string(), ""),
        LeaseError::Full(..) => error(TRY_AGAIN_LATER, cause.to_string(), ""),
        LeaseError::Files(source) => error(INPUT_OUTPUT, cause.to_string(), source),
    }
}
