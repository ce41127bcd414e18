//! Preparing of a pod's claims, before its sandbox is made.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::Api;
use node_plugin_api::dra::client::DraClient;
use node_plugin_api::dra::messages::{Claim, NodePrepareResourceResponse};

use super::claims::{ClaimInfo, PreparedDevice};
use super::drivers::Plugin;
use super::manager::{Dra, call_text, short};
use super::pod_claims::{Reference, check, has_claims, references};
use crate::pods::{namespace, uid};

impl Dra {
    /// Prepares all claims of a pod, those of a driver in one call. Words are upstream's.
    ///
    /// # Errors
    /// A claim cannot be used, or a driver has not prepared one; it is tried again.
    pub(crate) async fn prepare(&self, pod: &Pod) -> Result<(), String> {
        if !has_claims(pod) {
            return Ok(());
        }
        let prepared = self.measured("PrepareResources", self.prepare_claims(pod)).await;
        prepared.map_err(|error| format!("prepare dynamic resources: {error}"))
    }

    async fn prepare_claims(&self, pod: &Pod) -> Result<(), String> {
        let mut wanted = Vec::new();
        let mut plugins: BTreeMap<String, Arc<Plugin>> = BTreeMap::new();
        // Nothing is written down before all of it can be had: a pod that cannot start is not held up in its end, either.
        for reference in references(pod)? {
            let claim = self.claim(pod, &reference).await?;
            let info = ClaimInfo::of(&claim)
                .map_err(|error| format!("ResourceClaim {}: {error}", reference.name))?;
            for driver in info.drivers.keys() {
                if !plugins.contains_key(driver) {
                    plugins.insert(driver.clone(), self.driver_for(driver, uid(pod))?);
                }
            }
            wanted.push(info);
        }
        let keys: Vec<_> = wanted.iter().map(|claim| claim.key.clone()).collect();
        let batches = self.state.lock().claims.reserve(uid(pod), wanted)?;
        let saved = self.saver.save().await;
        saved.map_err(|error| format!("checkpoint ResourceClaim cache: {error}"))?;
        for (driver, claims) in batches {
            // A claim that was written down earlier may be of drivers that it is not of any more.
            let plugin = match plugins.get(&driver) {
                Some(plugin) => Arc::clone(plugin),
                None => self.driver_for(&driver, uid(pod))?,
            };
            self.prepare_by(&plugin, claims).await?;
        }
        self.state.lock().claims.all_prepared(&keys);
        let saved = self.saver.save().await;
        saved.map_err(|error| format!("checkpoint ResourceClaim state: {error}"))
    }

    /// Reads a claim, and checks that the pod may use it.
    async fn claim(&self, pod: &Pod, reference: &Reference) -> Result<ResourceClaim, String> {
        let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), namespace(pod));
        let found = api.get(&reference.name).await;
        let found = found.map_err(|error| {
            let why = match error {
                kube::Error::Api(refused) => refused.message.clone(),
                error => error.to_string(),
            };
            format!("fetch ResourceClaim {}: {why}", reference.name)
        })?;
        check(pod, reference, &found)?;
        Ok(found)
    }

    async fn prepare_by(&self, plugin: &Plugin, claims: Vec<Claim>) -> Result<(), String> {
        let (service, requested) = (plugin.service, claims.clone());
        let answer = self.call(plugin, service.prepare(), |transport| async move {
            DraClient::new(transport, service).prepare(requested).await
        });
        let mut answered = answer
            .await
            .map_err(|status| format!("NodePrepareResources: {}", call_text(&status)))?
            .claims;
        check_answer("NodePrepareResources", &claims, &answered, |own| &own.error)?;
        let mut prepared = Vec::new();
        for claim in &claims {
            let NodePrepareResourceResponse { devices, .. } = answered.remove(&claim.uid).unwrap_or_default();
            let devices: Vec<PreparedDevice> = devices.into_iter().map(PreparedDevice::from).collect();
            if !devices.iter().all(PreparedDevice::is_plain) {
                return Err(format!(
                    "DRA driver {} has answered control characters for ResourceClaim {}",
                    plugin.driver, claim.name
                ));
            }
            prepared.push((claim, devices));
        }
        let mut state = self.state.lock();
        for (claim, devices) in prepared {
            state.claims.prepared_by(&plugin.driver, claim, devices)?;
        }
        Ok(())
    }
}

/// Checks that a driver has answered for each claim and for no other, and has refused none.
pub(super) fn check_answer<T>(
    call: &str,
    requested: &[Claim],
    answered: &BTreeMap<String, T>,
    error_of: impl Fn(&T) -> &String,
) -> Result<(), String> {
    for (uid, outcome) in answered {
        let Some(claim) = requested.iter().find(|claim| claim.uid == *uid) else {
            return Err(format!(
                "{call} returned result for unknown claim UID {}",
                short(uid)
            ));
        };
        let error = error_of(outcome);
        if !error.is_empty() {
            return Err(format!(
                "{call} failed for ResourceClaim {}: {}",
                claim.name,
                short(error)
            ));
        }
    }
    match requested.len().saturating_sub(answered.len()) {
        0 => Ok(()),
        unfinished => Err(format!("{call} skipped {unfinished} ResourceClaims")),
    }
}
