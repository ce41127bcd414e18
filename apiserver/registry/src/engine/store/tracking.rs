//! Tracking of field owners: every write is recorded before admission sees it.

use super::{Store, Target, UpdatedObject};
use crate::engine::admission::Door;
use crate::engine::context::{LARGE_OBJECT_BYTES, RequestContext};
use crate::engine::error::RegistryError;
use crate::engine::managed_fields::{self, Subject, Versions, Writer};
use crate::engine::metadata;
use crate::engine::row::ResourceRow;
use crate::engine::strategy::ObjectPart;
use machinery_meta::GroupVersion;
use machinery_schema::Tree;
use std::sync::Arc;

/// The manager of what the server writes itself.
const OWN_MANAGER: &str = "kube-apiserver";

impl Versions for Store {
    fn row(&self, api_version: &str) -> Option<Arc<ResourceRow>> {
        let version: GroupVersion = api_version.parse().ok()?;
        let other = self
            .registry
            .store(&version.group, &version.version, &self.row.plural)?;
        // The same objects, not another group's of that name.
        (other.row.stored.prefix == self.row.stored.prefix).then_some(other.row)
    }
}

impl Store {
    /// The subject under which owners of a part of the kind are recorded.
    pub fn subject(&self, part: ObjectPart) -> Subject<'_> {
        Subject::part(&self.row, part, self)
    }

    /// The writer of a request, as records name it.
    pub fn writer(&self, ctx: &RequestContext, named: &str) -> Writer {
        Writer {
            manager: managed_fields::manager_of(named, &ctx.user_agent),
            now: metadata::format_time(ctx.runtime.now()),
        }
    }

    /// The writer of what passes a door; `None` for a write that carries out an admitted one and leaves records alone.
    fn writer_at(&self, ctx: &RequestContext, door: Door<'_>, named: &str) -> Option<Writer> {
        // The server's own parts write under its name, but for those that name themselves.
        let named = match named {
            "" if !door.has_plugins() => OWN_MANAGER,
            named => named,
        };
        (!door.is_following()).then(|| self.writer(ctx, named))
    }

    /// Notes that the server itself made an object that is stored beside another one.
    pub(crate) fn track_own(&self, ctx: &RequestContext, object: &mut Tree) {
        let nothing = Tree::new(&self.row.schema, self.row.ty);
        let writer = self.writer(ctx, OWN_MANAGER);
        let tracked = managed_fields::track(self.subject(ObjectPart::Main), &writer, &nothing, object);
        debug_assert!(tracked.is_ok(), "an object of ours has few fields");
    }

    /// Records the manager that made a new object.
    pub(super) async fn track_new(
        &self,
        ctx: &RequestContext,
        door: Door<'_>,
        named: &str,
        object: Tree,
    ) -> Result<Tree, RegistryError> {
        let Some(writer) = self.writer_at(ctx, door, named) else {
            return Ok(object);
        };
        let nothing = Tree::new(&self.row.schema, self.row.ty);
        self.track_part(ctx, ObjectPart::Main, writer, &nothing, object)
            .await
    }

    /// Records the fields that a manager changed of a live object, unless the change has done so itself.
    pub(super) async fn track_changed(
        &self,
        ctx: &RequestContext,
        door: Door<'_>,
        named: &str,
        (target, change): (Target<'_>, &dyn UpdatedObject),
        (live, mut object): (&Tree, Tree),
    ) -> Result<Tree, RegistryError> {
        if change.has_field_owners() {
            return Ok(object);
        }
        let Some(writer) = self.writer_at(ctx, door, named) else {
            return Ok(object);
        };
        let Some(window) = change.window() else {
            return self.track_part(ctx, target.part, writer, live, object).await;
        };
        if let Some(mut shown) = change.view(live)? {
            managed_fields::to_scale(self.subject(ObjectPart::Main), window, live, &mut shown);
            managed_fields::track(window, &writer, &shown, &mut object).map_err(managed_fields::refusal)?;
        }
        Ok(object)
    }

    async fn track_part(
        &self,
        ctx: &RequestContext,
        part: ObjectPart,
        writer: Writer,
        live: &Tree,
        mut object: Tree,
    ) -> Result<Tree, RegistryError> {
        let bytes = object.arena_bytes().max(live.arena_bytes());
        ctx.heavy_from(bytes, LARGE_OBJECT_BYTES).await?;
        managed_fields::track(self.subject(part), &writer, live, &mut object)
            .map_err(managed_fields::refusal)?;
        Ok(object)
    }
}
