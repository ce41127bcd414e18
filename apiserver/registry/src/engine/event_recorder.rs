//! Events that the server itself records about objects.
//!
//! The name of an event follows from what it says, so that finding the same thing again raises its count and nothing has
//! to be remembered.

use crate::engine::admission::Door;
use crate::engine::context::RequestContext;
use crate::engine::error::RegistryError;
use crate::engine::metadata;
use crate::engine::options::{CreateOptions, UpdateOptions};
use crate::engine::registry::Registry;
use crate::engine::scope::Scope;
use crate::engine::store::{Replacement, Store, Target};
use crate::engine::strategy::ObjectPart;
use machinery_meta::UserInfo;
use machinery_schema::{Ref, Strictness, Tree, apply_defaults, decode_json};
use serde_json::json;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Events of cluster-scoped objects live here.
const CLUSTER_EVENTS: &str = "default";

/// Records the events of one component.
#[derive(Debug)]
pub struct EventRecorder {
    door: Door<'static>,
    ctx: RequestContext,
    events: Store,
    component: &'static str,
    /// The `action` in events of components that set one.
    action: &'static str,
}

impl EventRecorder {
    /// Events are written through this door.
    pub fn new(
        registry: &Registry,
        door: Door<'static>,
        component: &'static str,
        action: &'static str,
    ) -> Result<Self, RegistryError> {
        let user = UserInfo::named("system:apiserver", [UserInfo::MASTERS]);
        let events = registry.store("", "v1", "events");
        Ok(Self {
            door,
            ctx: RequestContext::internal(user, registry.runtime().clone()),
            events: events.ok_or_else(|| RegistryError::Internal("events are not served".to_owned()))?,
            component,
            action,
        })
    }

    /// Warns about an object. An event that cannot be written is not worth failing for.
    pub async fn warn(&self, about: &Tree, reason: &str, message: &str) {
        tracing::warn!(
            object = metadata::name(about),
            reason,
            message,
            "event of the server"
        );
        if let Err(error) = self.write(about, reason, message).await {
            tracing::debug!(%error, reason, "an event was not written");
        }
    }

    async fn write(&self, about: &Tree, reason: &str, message: &str) -> Result<(), RegistryError> {
        let namespace = match metadata::namespace(about) {
            "" => CLUSTER_EVENTS,
            own => own,
        };
        let mut hash = DefaultHasher::new();
        (metadata::uid(about), reason, message).hash(&mut hash);
        let name = format!("{}.{:x}", metadata::name(about), hash.finish());
        let key = self.events.key(&Scope::of(namespace), &name)?;
        match self.events.read_entry(&key).await? {
            Some(known) => self.again(namespace, &name, self.events.decode(&known)?).await,
            None => self.first(about, namespace, &name, (reason, message)).await,
        }
    }

    async fn again(&self, namespace: &str, name: &str, mut event: Tree) -> Result<(), RegistryError> {
        let count = event.get("count").and_then(Ref::as_i64).unwrap_or(0);
        event.set_i64(&["count"], count + 1);
        event.set_str(&["lastTimestamp"], &metadata::format_time(self.ctx.runtime.now()));
        let scope = Scope::of(namespace);
        let target = Target {
            scope: &scope,
            name,
            part: ObjectPart::Main,
        };
        let (change, options) = (Replacement(event), UpdateOptions::default());
        let written = self
            .events
            .update(&self.ctx, target, &change, &options, self.door);
        written.await.map(drop)
    }

    async fn first(
        &self,
        about: &Tree,
        namespace: &str,
        name: &str,
        (reason, message): (&str, &str),
    ) -> Result<(), RegistryError> {
        let now = metadata::format_time(self.ctx.runtime.now());
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": about.str_at(&["apiVersion"]), "kind": about.str_at(&["kind"]),
                "namespace": metadata::namespace(about), "name": metadata::name(about), "uid": metadata::uid(about),
            },
            "type": "Warning", "reason": reason, "message": message, "action": self.action, "count": 1,
            "firstTimestamp": now, "lastTimestamp": now,
            "source": {"component": self.component}, "reportingComponent": self.component,
        });
        let row = &self.events.row;
        let text = event.to_string();
        let decoded = decode_json(&row.schema, row.ty, text.as_bytes(), Strictness::Ignore);
        let mut event = decoded
            .map_err(|error| RegistryError::Internal(error.to_string()))?
            .tree;
        apply_defaults(&mut event);
        row.strategy.defaults(&mut event);
        let options = CreateOptions::default();
        let scope = Scope::of(namespace);
        let made = self.events.create(&self.ctx, &scope, event, &options, self.door);
        made.await.map(drop)
    }
}
