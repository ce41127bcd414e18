//! Bootstrap tokens and certificate requests come, get other times or answers, and are taken away: the cleaners delete none
//! before its time, and in the end none is left whose time has come.

use crate::Scenario;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use machinery_client::{ApiResource, Patch};
use machinery_meta::ObjectKey;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const NAMES: u64 = 4;
const SYSTEM: &str = "kube-system";
/// A request of a key without an owner; a signature of the machine's own randomness would differ from run to run.
const REQUEST: &str = include_str!("../../testdata/request.base64");
/// Upstream's `deniedExpiration`.
const DENIED_FOR: SignedDuration = SignedDuration::from_hours(1);
/// A deletion may be on its way for so long.
const NEARLY: SignedDuration = SignedDuration::from_secs(30);
/// Expires soon after users have gone.
const LAST: &str = "last00";

#[derive(Default)]
struct Expiry {
    /// Objects that users deleted, and the now of the last look.
    deleted: BTreeSet<String>,
    now: Option<Timestamp>,
    /// Users have taken away all but the last token.
    ended: bool,
}

fn secret(name: &str) -> ObjectKey {
    ObjectKey::new(SYSTEM, name)
}

/// The data of a token that is good for so many seconds.
fn token(world: &World, id: &str, seconds: i64) -> Value {
    let until = world.runtime.now() + SignedDuration::from_secs(seconds);
    let until = until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({"token-id": id, "token-secret": "0123456789abcdef", "expiration": until})
}

async fn create_token(world: &World, id: &str, seconds: i64) {
    let metadata = json!({"name": format!("bootstrap-token-{id}"), "namespace": SYSTEM});
    let new = json!({"metadata": metadata, "stringData": token(world, id, seconds),
        "type": "bootstrap.kubernetes.io/token"});
    drop(world.create::<Secret>(new).await);
}

async fn answer(world: &World, key: &ObjectKey, kind: &str) {
    let condition = json!({"type": kind, "status": "True", "reason": "Story", "lastUpdateTime": world.now()});
    let body = json!({"status": {"conditions": [condition]}});
    let requests = ApiResource::of::<CertificateSigningRequest>();
    let patch = world
        .client
        .patch(&requests, key, "approval", &Patch::Merge, &body);
    // It may be gone, or have the other answer, which stays.
    drop(patch.await);
}

impl Expiry {
    async fn token_step(&mut self, world: &World, model: &ReferenceModel) {
        let id = format!("story{}", world.dice(NAMES));
        let name = format!("bootstrap-token-{id}");
        let seconds = i64::try_from(world.dice(3_000)).unwrap() - 60;
        let data = token(world, &id, seconds);
        match (world.dice(4), model.get("Secret", SYSTEM, &name)) {
            (_, None) => {
                create_token(world, &id, seconds).await;
            }
            (0, Some(own)) => {
                self.deleted.insert(own.uid.0.to_string());
                world.delete::<Secret>(&secret(&name)).await;
            }
            // One that is about to go may go although it was given more time.
            (1 | 2, Some(own)) if token_end(own) > Some(world.runtime.now() + NEARLY) => {
                world
                    .patch::<Secret>(&secret(&name), json!({"stringData": data}))
                    .await;
            }
            _ => {}
        }
    }

    async fn request_step(&mut self, world: &World, model: &ReferenceModel) {
        let name = format!("r{}", world.dice(NAMES));
        let key = ObjectKey::cluster(&*name);
        match (world.dice(5), model.get("CertificateSigningRequest", "", &name)) {
            (_, None) => {
                let new = json!({"metadata": {"name": name}, "spec": {"request": REQUEST.trim(),
                    "signerName": "example.com/story", "usages": ["client auth"]}});
                world.create::<CertificateSigningRequest>(new).await.unwrap();
            }
            (0, Some(own)) => {
                self.deleted.insert(own.uid.0.to_string());
                world.delete::<CertificateSigningRequest>(&key).await;
            }
            (1..4, Some(_)) => answer(world, &key, "Denied").await,
            _ => answer(world, &key, "Approved").await,
        }
    }
}

impl Scenario for Expiry {
    const CONTROLLERS: &'static [&'static str] = &[
        "token-cleaner-controller",
        "certificatesigningrequest-cleaner-controller",
    ];
    const STEPS: u32 = 40;
    const STEP_MILLIS: u64 = 500_000;

    async fn begin(&mut self, _: &World) {}

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        if world.once_in(2) {
            self.token_step(world, model).await;
        } else {
            self.request_step(world, model).await;
        }
    }

    async fn final_step(&mut self, world: &World) {
        self.ended = true;
        for at in 0..NAMES {
            world
                .delete::<Secret>(&secret(&format!("bootstrap-token-story{at}")))
                .await;
            world
                .delete::<CertificateSigningRequest>(&ObjectKey::cluster(format!("r{at}")))
                .await;
        }
        create_token(world, LAST, 100).await;
    }

    async fn run_nodes(&mut self, world: &World, _: &ReferenceModel) {
        self.now = Some(world.runtime.now());
    }

    fn check_invariant(&mut self, _: &ReferenceModel, change: &Change) -> Result<(), String> {
        let gone = change
            .gone("Secret")
            .or_else(|| change.gone("CertificateSigningRequest"));
        let Some(gone) = gone.filter(|own| !self.deleted.contains(&*own.uid.0)) else {
            return Ok(());
        };
        if self.ended && !gone.name().ends_with(LAST) {
            return Ok(());
        }
        let now = self.now.unwrap_or(Timestamp::UNIX_EPOCH) + SignedDuration::from_secs(11);
        match due(gone) {
            Some(due) if due <= now => Ok(()),
            due => Err(format!("it goes at {now}, {due:?} is its time")),
        }
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        let all = model.all("Secret").chain(model.all("CertificateSigningRequest"));
        let is_left = |own: &&std::sync::Arc<ObjectVersion>| due(own).is_some();
        let mut left = all.filter(is_left);
        left.next()
            .map_or(Ok(()), |own| Err(format!("{} is left", own.key)))
    }
}

/// The time after which an object is deleted.
fn due(own: &ObjectVersion) -> Option<Timestamp> {
    if own.kind == "Secret" {
        return token_end(own);
    }
    let conditions = own.list("/status/conditions").iter();
    let mut denied = conditions.filter(|own| own["type"] == "Denied");
    let at: Timestamp = denied.next()?["lastUpdateTime"].as_str()?.parse().ok()?;
    at.checked_add(DENIED_FOR).ok()
}

/// Data of Secrets are stored in base64.
fn token_end(own: &ObjectVersion) -> Option<Timestamp> {
    use base64::Engine;
    let text = own.text("/data/expiration");
    let text = base64::engine::general_purpose::STANDARD.decode(text).ok()?;
    std::str::from_utf8(&text).ok()?.parse().ok()
}

#[test]
fn tokens_and_requests_go_at_their_time() {
    run_seeds(Expiry::default);
}
