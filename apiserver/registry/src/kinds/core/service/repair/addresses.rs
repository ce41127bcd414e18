//! The loop over addresses: every change of a service or an address, and all of them each round.

use super::super::addresses::{address_object, store};
use super::super::range::Range;
use super::verdict::{self, Finding, Repair};
use super::{DOOR, RETRY, ROUND_EVERY, context, core_store};
use crate::engine::context::RequestContext;
use crate::engine::error::RegistryError;
use crate::engine::event_recorder::EventRecorder;
use crate::engine::metadata;
use crate::engine::options::{DeleteOptions, Preconditions};
use crate::engine::registry::Registry;
use crate::engine::scope::Scope;
use crate::engine::store::{Followed, Follower, ObjectChange, Store};
use apiserver_storage::{Entry, Expect, Op, StorageError, Write};
use machinery_meta::Predicate;
use machinery_schema::Tree;
use std::sync::Arc;
use std::time::Duration;

/// Upstream's name for the loop, and what its events say it does.
const COMPONENT: &str = "ipallocator-repair-controller";
const SERVICE_ACTION: &str = "ClusterIPAllocation";
const ADDRESS_ACTION: &str = "IPAddressAllocation";

/// See the module.
pub(super) struct AddressRepair {
    registry: Registry,
    ctx: RequestContext,
    services: Store,
    addresses: Store,
    of_services: EventRecorder,
    of_addresses: EventRecorder,
}

/// Services and addresses as they change, and the time of the next round over all of them.
pub(super) struct Rounds {
    services: Follower,
    addresses: Follower,
    due: Duration,
}

/// An object as it is stored now.
struct Live {
    entry: Arc<Entry>,
    object: Tree,
}

impl AddressRepair {
    pub(super) fn new(registry: &Registry) -> Result<Self, RegistryError> {
        Ok(Self {
            registry: registry.clone(),
            ctx: context(registry),
            services: core_store(registry, "services")?,
            addresses: store(registry, "ipaddresses")?,
            of_services: EventRecorder::new(registry, DOOR, COMPONENT, SERVICE_ACTION)?,
            of_addresses: EventRecorder::new(registry, DOOR, COMPONENT, ADDRESS_ACTION)?,
        })
    }

    /// The first round is due now.
    pub(super) fn rounds(&self) -> Rounds {
        let follow = |store: &Store| store.follow(Scope::Cluster, Predicate::default(), RETRY);
        Rounds {
            services: follow(&self.services),
            addresses: follow(&self.addresses),
            due: self.ctx.runtime.monotonic(),
        }
    }

    /// A round over everything there is; its followers deliver what comes after it.
    pub(super) async fn round(&self, rounds: &mut Rounds) -> Result<(), RegistryError> {
        let (services, addresses) = (rounds.services.begin().await?, rounds.addresses.begin().await?);
        self.services_changed(Followed::All(services)).await?;
        self.addresses_changed(Followed::All(addresses)).await?;
        rounds.due = self.ctx.runtime.monotonic() + ROUND_EVERY;
        Ok(())
    }

    /// Repairs for ever, all of it in each round.
    pub(super) async fn run(self: Arc<Self>, mut rounds: Rounds) {
        loop {
            let repaired = tokio::select! {
                biased;
                () = self.ctx.runtime.sleep_until(rounds.due) => self.round(&mut rounds).await,
                followed = rounds.services.next() => self.services_changed(followed).await,
                followed = rounds.addresses.next() => self.addresses_changed(followed).await,
            };
            if let Err(error) = repaired {
                tracing::warn!(%error, "repairing service addresses failed");
                rounds.due = self.ctx.runtime.monotonic() + RETRY;
            }
        }
    }

    async fn services_changed(&self, followed: Followed) -> Result<(), RegistryError> {
        let ranges = Range::all(&self.registry).await?;
        for entry in followed.present() {
            let key = &entry.record.header.key;
            self.reconcile_service(&key.namespace, &key.name, &ranges).await?;
        }
        Ok(())
    }

    async fn addresses_changed(&self, followed: Followed) -> Result<(), RegistryError> {
        for change in followed.changes() {
            match change {
                ObjectChange::Set(entry) => self.reconcile_address(&entry.record.header.key.name).await?,
                // Its service may still be there.
                ObjectChange::Gone(entry) => {
                    let gone = self.addresses.decode(&entry)?;
                    if let Some((namespace, name)) = verdict::service_of(&gone) {
                        let ranges = Range::all(&self.registry).await?;
                        self.reconcile_service(namespace, name, &ranges).await?;
                    }
                }
            }
        }
        Ok(())
    }

    async fn read(store: &Store, namespace: &str, name: &str) -> Result<Option<Live>, RegistryError> {
        // A name that cannot be one, as a reference may hold, names nothing.
        let Ok(key) = store.key(&Scope::of(namespace), name) else {
            return Ok(None);
        };
        let Some(entry) = store.read_entry(&key).await? else {
            return Ok(None);
        };
        let object = store.decode(&entry)?;
        Ok(Some(Live { entry, object }))
    }

    async fn reconcile_service(
        &self,
        namespace: &str,
        name: &str,
        ranges: &[Range],
    ) -> Result<(), RegistryError> {
        let Some(service) = Self::read(&self.services, namespace, name).await? else {
            return Ok(());
        };
        for address in verdict::addresses_of(&service.object) {
            let held = Self::read(&self.addresses, "", &address).await?;
            let holder = held.as_ref().and_then(|held| verdict::service_of(&held.object));
            let other = match holder.filter(|holder| *holder != (namespace, name)) {
                Some((namespace, name)) => Self::read(&self.services, namespace, name).await?,
                None => None,
            };
            let [held_object, other] = [&held, &other].map(|own| own.as_ref().map(|own| &own.object));
            if let Some(finding) = verdict::of_service(&service.object, &address, ranges, held_object, other)
                && self
                    .repair(&finding, &address, Some(&service), held.as_ref())
                    .await?
            {
                self.warn(&self.of_services, &service.object, &finding).await;
            }
        }
        Ok(())
    }

    async fn reconcile_address(&self, name: &str) -> Result<(), RegistryError> {
        let Some(address) = Self::read(&self.addresses, "", name).await? else {
            return Ok(());
        };
        let service = match verdict::service_of(&address.object) {
            Some((namespace, name)) => Self::read(&self.services, namespace, name).await?,
            None => None,
        };
        let service = service.as_ref().map(|service| &service.object);
        let now = self.ctx.runtime.now();
        if let Some(finding) = verdict::of_address(&address.object, service, now)
            && self.repair(&finding, name, None, Some(&address)).await?
        {
            self.warn(&self.of_addresses, &address.object, &finding).await;
        }
        Ok(())
    }

    async fn warn(&self, recorder: &EventRecorder, about: &Tree, finding: &Finding) {
        if let Some((reason, note)) = &finding.event {
            recorder.warn(about, reason, note).await;
        }
    }

    /// Carries a repair out; answers whether things still were as they had been found.
    async fn repair(
        &self,
        finding: &Finding,
        address: &str,
        service: Option<&Live>,
        held: Option<&Live>,
    ) -> Result<bool, RegistryError> {
        if matches!(finding.repair, Repair::Remove | Repair::Remake)
            && let Some(held) = held
            && !self.remove(held).await?
        {
            return Ok(false);
        }
        match (finding.repair, service) {
            (Repair::Make | Repair::Remake, Some(service)) => self.make(address, service).await,
            _ => Ok(true),
        }
    }

    async fn remove(&self, held: &Live) -> Result<bool, RegistryError> {
        let options = DeleteOptions {
            preconditions: Preconditions {
                uid: Some(held.entry.record.header.uid.clone()),
                resource_version: Some(held.entry.revision.to_string()),
            },
            ..DeleteOptions::default()
        };
        let name = metadata::name(&held.object);
        match self
            .addresses
            .delete(&self.ctx, &Scope::Cluster, name, &options, DOOR)
            .await
        {
            Ok(_) => Ok(true),
            // It changed or went: the watch delivers that, and it is checked again.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes the address of a service, as long as it is free and the service is as it was.
    async fn make(&self, address: &str, service: &Live) -> Result<bool, RegistryError> {
        let object = address_object(&self.ctx, &self.addresses, &service.object, address);
        let unchanged = Write {
            key: service.entry.key.clone(),
            expect: Expect::At(service.entry.revision),
            op: Op::Check,
        };
        let made = Write::create(
            self.addresses.key(&Scope::Cluster, address)?,
            self.addresses.encode(&object)?,
        );
        match self.registry.storage().commit(vec![unchanged, made]).await {
            Ok(_) => Ok(true),
            Err(StorageError::Conflict { .. }) => Ok(false),
            Err(error) => Err(self.addresses.storage_error(&error)),
        }
    }
}
