//! A candidate: becomes the leader, stays it, and gives it back.

use super::config::{ElectionConfig, JITTER};
use super::leadership::Leadership;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use machinery_client::events::{EventRecorder, ObjectReference};
use machinery_client::{ApiResource, Client, ClientError};
use machinery_meta::ObjectKey;
use machinery_runtime::Runtime;
use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub struct Elector {
    config: ElectionConfig,
    client: Client,
    runtime: Runtime,
    recorder: EventRecorder,
    leadership: Leadership,
    /// The lease as it was read or written last.
    lease: Option<Lease>,
    /// Time at which it was seen to change last, by the runtime's clock.
    changed: Duration,
}

/// The reason of the events, as upstream writes it.
const REASON: &str = "LeaderElection";
/// Retries of a release because the lease moved.
const RELEASE_ATTEMPTS: usize = 3;

impl Elector {
    /// A candidate. The component's events are recorded as those of `component`.
    pub fn new(config: ElectionConfig, client: Client, component: &str) -> Self {
        let runtime = client.runtime().clone();
        Self {
            recorder: EventRecorder::new(client.clone(), component),
            leadership: Leadership::none(&runtime),
            lease: None,
            changed: Duration::ZERO,
            config,
            client,
            runtime,
        }
    }

    /// Leadership for everything that acts for the leader.
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Tries until this candidate leads.
    pub async fn acquire(&mut self) {
        let lease = &self.config.resource_name;
        tracing::info!(%lease, "attempting to acquire leader lease");
        self.runtime.components().leads(lease, false);
        while !self.attempt(self.config.renew_deadline).await {
            let spread = f64::from(u32::try_from(self.runtime.random_u64() % 1000).unwrap_or(0)) / 1000.0;
            let pause = self.config.retry_period.mul_f64(1.0 + JITTER * spread);
            self.runtime.sleep(pause).await;
        }
        tracing::info!(lease = %self.config.resource_name, identity = %self.config.identity, "became leader");
        self.runtime.components().leads(&self.config.resource_name, true);
        self.record("became leader");
    }

    /// Renews while that succeeds; answers when this candidate leads no longer. Everything that acts for it must end then.
    pub async fn hold(&mut self) {
        loop {
            self.runtime.sleep(self.config.retry_period).await;
            let Some(left) = self.leadership.left() else { break };
            // An attempt that hangs leaves time for another one.
            self.attempt(left.min(self.config.renew_deadline / 2)).await;
            if !self.is_ours() {
                break;
            }
        }
        self.leadership.end();
        self.runtime.components().leads(&self.config.resource_name, false);
        tracing::warn!(lease = %self.config.resource_name, identity = %self.config.identity, "stopped leading");
        self.record("stopped leading");
    }

    /// Gives the lease back, after everything that acted for it has ended, so that no candidate needs to wait for it to run out.
    pub async fn release(&mut self) {
        let held = self.is_ours();
        self.leadership.end();
        self.runtime.components().leads(&self.config.resource_name, false);
        if !held {
            return;
        }
        self.record("stopped leading");
        for _ in 0..RELEASE_ATTEMPTS {
            let now = MicroTime(self.runtime.now());
            let spec = LeaseSpec {
                holder_identity: Some(String::new()),
                lease_duration_seconds: Some(1),
                lease_transitions: self.spec().and_then(|spec| spec.lease_transitions),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                ..LeaseSpec::default()
            };
            match self.write(spec).await {
                Ok(()) => return,
                Err(error) if error.is_conflict() => {
                    if self.read().await.is_err() || !self.is_ours() {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(error = %error.chain(), lease = %self.config.resource_name, "failed to release lease");
                    return;
                }
            }
        }
    }

    /// One attempt, bounded; whether it made or kept this candidate the leader.
    async fn attempt(&mut self, within: Duration) -> bool {
        let runtime = self.runtime.clone();
        match runtime.timeout(within, self.acquire_or_renew()).await {
            Ok(Ok(leads)) => leads,
            Ok(Err(error)) => {
                tracing::debug!(error = %error.chain(), lease = %self.config.resource_name, "lease not renewed");
                false
            }
            Err(_) => false,
        }
    }

    async fn acquire_or_renew(&mut self) -> Result<bool, ClientError> {
        if self.is_ours() && self.stands_still_for() < self.lasts() {
            match self.renew().await {
                Ok(()) => return Ok(true),
                Err(error) => {
                    tracing::debug!(error = %error.chain(), "the lease is read before it is renewed")
                }
            }
        }
        match self.read().await {
            Ok(()) => {}
            Err(error) if error.is_not_found() => return self.create().await.map(|()| true),
            Err(error) => return Err(error),
        }
        let free = self.holder().is_empty();
        if !free && !self.is_ours() && self.stands_still_for() < self.lasts() {
            return Ok(false);
        }
        if self.is_ours() {
            self.runtime.components().slow_path(&self.config.resource_name);
        }
        self.renew().await.map(|()| true)
    }

    fn spec(&self) -> Option<&LeaseSpec> {
        self.lease.as_ref()?.spec.as_ref()
    }

    fn holder(&self) -> &str {
        let holder = self.spec().and_then(|spec| spec.holder_identity.as_deref());
        holder.unwrap_or_default()
    }

    fn is_ours(&self) -> bool {
        self.holder() == self.config.identity
    }

    /// Time since the lease was seen to change.
    fn stands_still_for(&self) -> Duration {
        self.runtime.monotonic().saturating_sub(self.changed)
    }

    /// Duration that the holder wrote into the lease.
    fn lasts(&self) -> Duration {
        let seconds = self.spec().and_then(|spec| spec.lease_duration_seconds);
        Duration::from_secs(seconds.and_then(|own| u64::try_from(own).ok()).unwrap_or(0))
    }

    fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.config.resource_namespace, &self.config.resource_name)
    }

    async fn read(&mut self) -> Result<(), ClientError> {
        let lease: Lease = self
            .client
            .get_as(&ApiResource::of::<Lease>(), &self.key())
            .await?;
        if self.spec() != lease.spec.as_ref() || self.lease.is_none() {
            self.changed = self.runtime.monotonic();
        }
        self.lease = Some(lease);
        Ok(())
    }

    /// This candidate's spec; a leader that goes on stays the one that it was.
    fn renewed(&self) -> LeaseSpec {
        let (now, old) = (MicroTime(self.runtime.now()), self.spec());
        let transitions = old.and_then(|old| old.lease_transitions).unwrap_or(0);
        let (acquired, transitions) = match old {
            Some(old) if self.is_ours() => (old.acquire_time.clone(), transitions),
            Some(_) => (None, transitions.saturating_add(1)),
            None => (None, 0),
        };
        LeaseSpec {
            holder_identity: Some(self.config.identity.clone()),
            lease_duration_seconds: i32::try_from(self.config.lease_duration.as_secs()).ok(),
            acquire_time: Some(acquired.unwrap_or_else(|| now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }

    async fn renew(&mut self) -> Result<(), ClientError> {
        let sent = self.runtime.monotonic();
        self.write(self.renewed()).await?;
        self.leadership.extend(sent + self.config.renew_deadline);
        Ok(())
    }

    async fn write(&mut self, spec: LeaseSpec) -> Result<(), ClientError> {
        let known = self.lease.clone().unwrap_or_default();
        let lease = Lease {
            spec: Some(spec),
            ..known
        };
        let sent = self
            .client
            .update(&ApiResource::of::<Lease>(), &self.key(), "", &lease);
        self.wrote(&sent.await?)
    }

    async fn create(&mut self) -> Result<(), ClientError> {
        self.lease = None;
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.config.resource_name.clone()),
                namespace: Some(self.config.resource_namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(self.renewed()),
        };
        let sent = self.runtime.monotonic();
        let resource = ApiResource::of::<Lease>();
        let made = self
            .client
            .create(&resource, &self.config.resource_namespace, &lease)
            .await?;
        self.wrote(&made)?;
        self.leadership.extend(sent + self.config.renew_deadline);
        Ok(())
    }

    fn wrote(&mut self, json: &[u8]) -> Result<(), ClientError> {
        let lease = serde_json::from_slice(json).map_err(|source| ClientError::Decode {
            what: "Lease".to_owned(),
            source,
        })?;
        self.lease = Some(lease);
        self.changed = self.runtime.monotonic();
        Ok(())
    }

    fn record(&self, what: &str) {
        let uid = self.lease.as_ref().and_then(|lease| lease.metadata.uid.clone());
        let about = ObjectReference::new(
            &ApiResource::of::<Lease>(),
            &self.key(),
            uid.as_deref().unwrap_or_default(),
        );
        let message = format!("{} {what}", self.config.identity);
        self.recorder.normal(&about, REASON, message);
    }
}
