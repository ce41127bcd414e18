//! Writes every object of a resource anew, so that it is stored in the present version and under the present key
//! (upstream's `pkg/controller/storageversionmigrator`).
//!
//! Watches: StorageVersionMigrations (the key). Of several for one resource the oldest runs, and the others wait. A
//! migration that runs notes the newest revision, then sends a patch without a change for each object that is not newer;
//! those that were written or deleted meanwhile need none. A definition whose objects are migrated says so in its
//! conditions, and at the end drops the versions that are stored no more.
//!
//! Never: keeps more than a page of objects.

mod definitions;
mod migrate;
mod plan;
mod reconcile;
#[cfg(test)]
mod tests;
pub(crate) mod view;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::served_kinds::ServedKinds;
use futures::future::BoxFuture;
use k8s_openapi::api::storagemigration::v1::StorageVersionMigration;
use machinery_client::Informer;
use reconcile::Migrator;
use view::MigrationView;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "storage-version-migrator-controller",
    queue: "storage-version-migrator-controller",
    service_account: "storage-version-migrator-controller",
    default: true,
    start,
};

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let client = context.client(ROW.service_account);
    let migrations: Informer<MigrationView> = context.informers.of::<StorageVersionMigration, _>();
    let known = migrations.clone();
    let controller = ROW
        .controller(&context.runtime)
        .watches(&migrations, move |change| {
            // One that ends lets the next of its resource begin.
            let resource = &change.latest().resource;
            let all = known.list().into_iter();
            let near = all
                .filter(|own| own.resource == *resource)
                .map(|own| own.key().clone());
            near.chain([change.key().clone()]).collect::<Vec<_>>()
        });
    controller.run(Migrator {
        kinds: ServedKinds::new(client.clone()),
        client,
        runtime: context.runtime.clone(),
        migrations,
    })
}
