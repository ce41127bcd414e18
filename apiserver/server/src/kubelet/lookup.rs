//! Objects that decide the location of a request. Such a request has no seat: once it has read much, it goes on in turn
//! with other heavy work.

use apiserver_registry::context::LARGE_BODY_BYTES;
use apiserver_registry::{RegistryError, RequestContext};
use machinery_api::read_stored;
use machinery_meta::reader::{ObjectReader, ReadError, ReadObject};
use machinery_meta::{GroupResource, LabelSelector, ObjectKey};
use machinery_schema::Tree;
use serde::de::DeserializeOwned;

/// Reads objects for one request, and counts their bytes.
pub(super) struct Lookup<'a> {
    reader: &'a dyn ObjectReader,
    ctx: &'a RequestContext,
    read: usize,
}

impl<'a> Lookup<'a> {
    pub(super) fn new(reader: &'a dyn ObjectReader, ctx: &'a RequestContext) -> Self {
        let read = 0;
        Self { reader, ctx, read }
    }

    /// An object of the core group, as its fields that decide.
    pub(super) async fn find<T: DeserializeOwned>(
        &mut self,
        plural: &str,
        namespace: &str,
        name: &str,
    ) -> Result<T, RegistryError> {
        let object = read(self.reader, plural, namespace, name).await?;
        self.weigh(&object).await?;
        parse(&object)
    }

    /// A pod; [`machinery_api::pod::PodView`] reads it.
    pub(super) async fn pod(&mut self, namespace: &str, name: &str) -> Result<Tree, RegistryError> {
        let object = read(self.reader, "pods", namespace, name).await?;
        self.weigh(&object).await?;
        read_stored("", "v1", "Pod", &object.json).map_err(internal)
    }

    /// An object of a list that [`Lookup::keys`] returned, if it is still there.
    pub(super) async fn listed<T: DeserializeOwned>(
        &mut self,
        resource: &GroupResource,
        key: &ObjectKey,
    ) -> Result<Option<T>, RegistryError> {
        let Some(object) = self.reader.get(resource, key).await.map_err(failed)? else {
            return Ok(None);
        };
        self.weigh(&object).await?;
        parse(&object).map(Some)
    }

    /// Keys of the objects of a namespace with a label.
    pub(super) async fn keys(
        &self,
        resource: &GroupResource,
        namespace: &str,
        label: (&str, &str),
    ) -> Result<Vec<ObjectKey>, RegistryError> {
        let labelled = LabelSelector::from_pairs([label]).into();
        let versions = self.reader.versions(resource, namespace, &labelled).await;
        let keys = versions.map_err(failed)?.into_iter().map(|(key, _)| key);
        Ok(keys.collect())
    }

    async fn weigh(&mut self, object: &ReadObject) -> Result<(), RegistryError> {
        // A tenant may write as many as her quota holds.
        tokio::task::consume_budget().await;
        self.read = self.read.saturating_add(object.json.len());
        self.ctx.heavy_from(self.read, LARGE_BODY_BYTES).await
    }
}

/// An object of the core group.
pub(super) async fn read(
    reader: &dyn ObjectReader,
    plural: &str,
    namespace: &str,
    name: &str,
) -> Result<ReadObject, RegistryError> {
    let resource = GroupResource::new("", plural);
    let found = reader.get(&resource, &ObjectKey::new(namespace, name)).await;
    let object = found.map_err(failed)?;
    object.ok_or_else(|| RegistryError::not_found(&resource, name))
}

pub(super) fn parse<T: DeserializeOwned>(object: &ReadObject) -> Result<T, RegistryError> {
    serde_json::from_slice(&object.json).map_err(internal)
}

fn failed(error: ReadError) -> RegistryError {
    internal(error)
}

fn internal(error: impl std::fmt::Display) -> RegistryError {
    RegistryError::Internal(error.to_string())
}
