//! Writes EndpointSlices for the controllers that own them, and remembers those that were written and not seen yet.

use k8s_openapi::api::discovery::v1::EndpointSlice;
use machinery_client::object::parse_header;
use machinery_client::{
    ApiResource, Client, ClientError, DeleteOptions, Edit, Informer, Object, Projection, Subscription,
};
use machinery_meta::{ObjectKey, Revision};
use machinery_reconcile::{Expectations, WorkQueue, names};
use machinery_runtime::Runtime;
use machinery_runtime::metrics::Counters;
use serde_json::{Value, json};

/// Slices by the key of what they are made for.
pub(crate) struct SliceWriter {
    client: Client,
    runtime: Runtime,
    tracker: Expectations<ObjectKey>,
    /// By operation.
    changes: Counters,
}

impl SliceWriter {
    pub(crate) fn new(client: Client, runtime: Runtime, changes: Counters) -> Self {
        Self {
            client,
            runtime,
            tracker: Expectations::default(),
            changes,
        }
    }

    /// Puts keys that wait for slices in line after each list of these, for as long as the subscription is kept.
    pub(crate) fn requeue_after_lists<P: Projection>(
        &self,
        slices: &Informer<P>,
        queue: WorkQueue<ObjectKey>,
    ) -> Subscription {
        self.tracker.requeue_after_lists(slices, queue, ObjectKey::clone)
    }

    /// Reports whether the cache shows all that was written. If not, the slices' own events are still to come. A lost
    /// answer is waited for no longer: whether the slice was made will show, and the plan is made from what is seen.
    pub(crate) fn is_settled<P: Projection>(&self, key: &ObjectKey, slices: &Informer<P>) -> bool {
        let awaited = self.tracker.settle(key, slices);
        if awaited.events {
            return false;
        }
        for slice in &awaited.unacknowledged {
            self.tracker.not_created(key, slice);
        }
        true
    }

    /// The object is gone.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.tracker.forget(key);
    }

    /// Makes a slice with these labels, owners and contents, under a name of its own.
    pub(crate) async fn create(&self, key: &ObjectKey, mut slice: Value) -> Result<(), ClientError> {
        let prefix = format!("{}-", key.name);
        let name = ObjectKey::new(&*key.namespace, names::generate(&self.runtime, &prefix));
        slice["apiVersion"] = json!("discovery.k8s.io/v1");
        slice["kind"] = json!("EndpointSlice");
        let metadata = &mut slice["metadata"];
        metadata["name"] = json!(name.name);
        metadata["generateName"] = json!(prefix);
        metadata["namespace"] = json!(name.namespace);
        self.tracker.creating(key, name.clone());
        let resource = ApiResource::of::<EndpointSlice>();
        match self.client.create(&resource, &name.namespace, &slice).await {
            Ok(body) => self.tracker.created(key, &name, revision(&body)),
            Err(error) => {
                self.tracker.not_created(key, &name);
                return Err(error);
            }
        }
        self.changes.of(&["create"]).inc();
        Ok(())
    }

    /// Rewrites a slice.
    pub(crate) async fn update(
        &self,
        key: &ObjectKey,
        slice: &ObjectKey,
        edit: Edit,
    ) -> Result<(), ClientError> {
        let resource = ApiResource::of::<EndpointSlice>();
        self.tracker.changing(key, slice.clone());
        match self.client.update(&resource, slice, "", edit.body()).await {
            Ok(body) => self.tracker.changed(key, slice, revision(&body)),
            Err(error) => {
                self.tracker.not_changed(key, slice);
                return Err(error);
            }
        }
        self.changes.of(&["update"]).inc();
        Ok(())
    }

    /// Deletes a slice, if it is still this one.
    pub(crate) async fn delete<P>(&self, slice: &Object<P>) -> Result<(), ClientError> {
        let options = DeleteOptions::uid(slice.uid());
        let resource = ApiResource::of::<EndpointSlice>();
        match self.client.delete(&resource, slice.key(), &options).await {
            Err(error) if error.is_not_found() || error.is_conflict() => return Ok(()),
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        self.changes.of(&["delete"]).inc();
        Ok(())
    }
}

fn revision(answer: &[u8]) -> Revision {
    parse_header(answer).map_or(Revision::ZERO, |(_, revision)| revision)
}
