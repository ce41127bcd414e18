//! Writes of claims' statuses: allocations, and reservations of pods (upstream's `bindClaim`).

use super::extended::ANNOTATION;
use super::objects::DeviceId;
use super::post_filter::Deallocation;
use super::reservation::{DeviceReservation, HeldClaim};
use crate::pod::PodInfo;
use k8s_openapi::api::resource::v1::ResourceClaim;
use machinery_client::object::parse_header;
use machinery_client::{ApiResource, Client, ClientError, DeleteOptions, Patch};
use machinery_meta::{ObjectKey, Revision, Uid};
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::time::Duration;

/// The finalizer of claims that have devices.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Tries of writing a claim that others write too.
const TRIES: usize = 5;
/// Pause between two reads of a claim that the server does not answer.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// The server has no place for the request now.
const TOO_MANY_REQUESTS: i32 = 429;

/// Writes claims of pods.
#[derive(Debug)]
pub(crate) struct ClaimWriter<'a> {
    client: &'a Client,
    runtime: &'a Runtime,
    claims: ApiResource,
}

/// A write that did not go through.
enum Failure {
    /// Another was faster, or the outcome is unknown: the claim is looked at again.
    Open(String),
    Final(String),
}

impl Failure {
    fn of(doing: &str, key: &ObjectKey, error: &ClientError) -> Self {
        let message = format!("{doing} claim {key}: {}", error.chain());
        match error.is_conflict() || error.leaves_open() {
            true => Self::Open(message),
            false => Self::Final(message),
        }
    }
}

impl<'a> ClaimWriter<'a> {
    pub(crate) fn new(client: &'a Client, runtime: &'a Runtime) -> Self {
        Self {
            client,
            runtime,
            claims: ApiResource::of::<ResourceClaim>(),
        }
    }

    /// Writes an allocation with the pod's reservation. Where the answer is lost the claim is read until it is known: devices
    /// that it may have must not go to another.
    pub(crate) async fn reserve(&self, pod: &PodInfo, own: &mut DeviceReservation) -> Result<(), String> {
        self.make(pod, own).await?;
        let consumer = json!({"resource": "pods", "name": pod.key.name, "uid": pod.uid()});
        let mut failed = String::new();
        for attempt in 0..=TRIES {
            let claim = self.read(own).await?;
            let reserved = claim["status"]["reservedFor"].as_array();
            if reserved.is_some_and(|all| all.contains(&consumer)) {
                let found = &claim["status"]["allocation"];
                match &own.allocation {
                    Some(wanted) if !is_same(wanted, found) => return Err(elsewhere(own.key())),
                    Some(_) => {}
                    None => has_still(own, found)?,
                }
                own.written = revision_of(&claim);
                return Ok(());
            }
            if attempt == TRIES {
                break;
            }
            match self.try_reserve(claim, own, &consumer).await {
                Ok(written) => {
                    own.written = revision_of(&written);
                    return Ok(());
                }
                Err(Failure::Final(why)) => return Err(why),
                Err(Failure::Open(why)) => failed = why,
            }
        }
        Err(failed)
    }

    /// Makes the claim of extended resources. One whose answer is lost is found by the next attempt, and deleted.
    async fn make(&self, pod: &PodInfo, own: &mut DeviceReservation) -> Result<(), String> {
        let Some(special) = own.special.as_mut().filter(|own| own.made.is_none()) else {
            return Ok(());
        };
        let namespace = &*pod.key.namespace;
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": pod.key.name, "uid": pod.uid(), "controller": true});
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {
                "namespace": namespace, "generateName": format!("{}-extended-resources-", pod.key.name),
                "ownerReferences": [owner], "annotations": {ANNOTATION: "true"},
            },
            "spec": special.spec,
        });
        let failed = |why: String| format!("create claim for extended resources {namespace}/: {why}");
        let made = self.client.create(&self.claims, namespace, &claim).await;
        let made = made.map_err(|error| failed(error.chain()))?;
        let (header, _) = parse_header(&made).map_err(|error| failed(error.to_string()))?;
        special.made = Some((header.key, header.uid.0.into()));
        Ok(())
    }

    /// The claim as it is, by reads that are repeated until the server answers.
    async fn read(&self, own: &DeviceReservation) -> Result<Value, String> {
        let key = own.key();
        let claim = loop {
            match self.client.get_as::<Value>(&self.claims, key).await {
                Ok(claim) => break claim,
                Err(error) if error.leaves_open() || error.code() == TOO_MANY_REQUESTS => {
                    tracing::debug!(claim = %key, error = %error.chain(), "a claim was not read");
                    self.runtime.sleep(TRY_AGAIN).await;
                }
                Err(error) => return Err(format!("get claim {key}: {}", error.chain())),
            }
        };
        let metadata = &claim["metadata"];
        if !metadata["deletionTimestamp"].is_null() || metadata["uid"].as_str() != Some(own.uid()) {
            return Err(format!("claim {key} got deleted in the meantime"));
        }
        Ok(claim)
    }

    async fn try_reserve(
        &self,
        mut claim: Value,
        own: &DeviceReservation,
        consumer: &Value,
    ) -> Result<Value, Failure> {
        let key = own.key();
        if let Some(allocation) = &own.allocation {
            if !claim["status"]["allocation"].is_null() {
                return Err(Failure::Final(elsewhere(key)));
            }
            // A finalizer is no part of the status.
            if add(&mut claim["metadata"]["finalizers"], FINALIZER.into()) {
                claim = self.write("add finalizer to", key, "", &claim).await?;
            }
            claim["status"]["allocation"] = self.named(allocation);
        } else {
            has_still(own, &claim["status"]["allocation"]).map_err(Failure::Final)?;
        }
        if claim["status"]["allocation"]["allocationTimestamp"].is_null() {
            let now = format!("{:.0}", self.runtime.now());
            claim["status"]["allocation"]["allocationTimestamp"] = now.into();
        }
        add(&mut claim["status"]["reservedFor"], consumer.clone());
        let doing = match own.allocation {
            Some(_) => "add allocation and reservation to",
            None => "add reservation to",
        };
        self.write(doing, key, "status", &claim).await
    }

    async fn write(&self, doing: &str, key: &ObjectKey, part: &str, claim: &Value) -> Result<Value, Failure> {
        let written = self.client.update(&self.claims, key, part, claim).await;
        let written = written.map_err(|error| Failure::of(doing, key, &error))?;
        serde_json::from_slice(&written)
            .map_err(|error| Failure::Final(format!("{doing} claim {key}: {error}")))
    }

    /// The allocation with an id for each share.
    fn named(&self, allocation: &Value) -> Value {
        let mut allocation = allocation.clone();
        let results = allocation["devices"]["results"].as_array_mut();
        for own in results.into_iter().flatten() {
            if own["shareID"].is_string() {
                own["shareID"] = self.runtime.uuid().to_string().into();
            }
        }
        allocation
    }

    /// Takes the pod out of its claim, unless another has its name by now. The rest is cleared up once the pod is gone. A
    /// claim that was made for extended resources goes.
    pub(crate) async fn unreserve(&self, pod: &PodInfo, own: &HeldClaim) {
        if own.is_special {
            if let Err(error) = self.delete(&own.claim, &own.uid).await {
                let (claim, error) = (&own.claim, error.chain());
                tracing::debug!(pod = %pod.key, %claim, %error, "a claim of extended resources was not deleted");
            }
            return;
        }
        let body = json!({"metadata": {"uid": own.uid},
            "status": {"reservedFor": [{"$patch": "delete", "uid": pod.uid()}]}});
        let key = &own.claim;
        let patched = self
            .client
            .patch(&self.claims, key, "status", &Patch::Strategic, &body);
        if let Err(error) = patched.await.map_err(|error| error.chain()) {
            tracing::debug!(pod = %pod.key, claim = %key, %error, "a reservation was not taken back");
        }
    }

    /// Takes the devices of a claim back, unless it was written since it was looked at: a pod may have reserved it.
    pub(crate) async fn deallocate(&self, own: &Deallocation) -> Result<(), ClientError> {
        if own.deletes {
            return self.delete(&own.claim, &own.uid).await;
        }
        let nothing = json!({"metadata": {"uid": own.uid, "resourceVersion": own.revision.to_string()},
            "status": {"allocation": null, "reservedFor": null, "devices": null}});
        let patched = self
            .client
            .patch(&self.claims, &own.claim, "status", &Patch::Merge, &nothing);
        patched.await.map(drop)
    }
}

impl ClaimWriter<'_> {
    /// Deletes a claim, first the finalizer that keeps it. One that is gone already is no error.
    async fn delete(&self, key: &ObjectKey, uid: &str) -> Result<(), ClientError> {
        for _ in 0..TRIES {
            match self.try_delete(key, uid).await {
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error) if error.is_conflict() => {}
                other => return other,
            }
        }
        self.try_delete(key, uid).await
    }

    async fn try_delete(&self, key: &ObjectKey, uid: &str) -> Result<(), ClientError> {
        let mut claim: Value = self.client.get_as(&self.claims, key).await?;
        if claim["metadata"]["uid"].as_str() != Some(uid) {
            return Ok(());
        }
        let finalizers = claim["metadata"]["finalizers"].as_array_mut();
        let kept = finalizers.is_some_and(|all| {
            let before = all.len();
            all.retain(|own| own != FINALIZER);
            all.len() < before
        });
        if kept {
            self.client.update(&self.claims, key, "", &claim).await?;
        }
        let options = DeleteOptions::uid(&Uid(uid.to_owned()));
        self.client.delete(&self.claims, key, &options).await.map(drop)
    }
}

fn revision_of(claim: &Value) -> Option<Revision> {
    claim["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

fn elsewhere(key: &ObjectKey) -> String {
    format!("claim {key} got allocated elsewhere in the meantime")
}

/// An error where the claim has not the devices any more with which the node was chosen.
fn has_still(own: &DeviceReservation, found: &Value) -> Result<(), String> {
    let key = own.key();
    if found.is_null() {
        return Err(format!("claim {key} got deallocated elsewhere in the meantime"));
    }
    let results = found["devices"]["results"].as_array();
    let results = results.map_or(&[][..], Vec::as_slice);
    let is = |(id, found): (&DeviceId, &Value)| {
        let parts = [("driver", &id.driver), ("pool", &id.pool), ("device", &id.device)];
        parts.iter().all(|(name, own)| found[name].as_str() == Some(own))
    };
    match own.has.len() == results.len() && own.has.iter().zip(results).all(is) {
        true => Ok(()),
        false => Err(elsewhere(key)),
    }
}

/// Reports whether both allocations have the same devices.
fn is_same(wanted: &Value, found: &Value) -> bool {
    let devices = |own: &Value| {
        let results = own["devices"]["results"].as_array();
        let id = |own: &Value| ["request", "driver", "pool", "device"].map(|name| own[name].clone());
        results.into_iter().flatten().map(id).collect::<Vec<_>>()
    };
    devices(wanted) == devices(found)
}

/// Adds a value to a list that may not be there. Reports whether it was not in it.
fn add(list: &mut Value, own: Value) -> bool {
    match list.as_array_mut() {
        Some(all) if all.contains(&own) => return false,
        Some(all) => all.push(own),
        None => *list = json!([own]),
    }
    true
}
