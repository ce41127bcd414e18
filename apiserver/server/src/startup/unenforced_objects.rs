//! Objects that guard something and that nothing enforces, but that are stored (decision 0030): by an older version, a restore, or
//! a start with `--allow-unenforced`. Each start names them, since their writers may believe in them.

use super::Startup;
use apiserver_registry::options::ListOptions;
use apiserver_registry::{RegistryError, ResourceRow, Scope, metadata};
use futures::future::BoxFuture;
use machinery_runtime::metrics::Family;
use machinery_schema::Tree;
use std::sync::Arc;

/// Objects read at a time.
const PAGE: usize = 100;
/// Names in the log for each resource.
const MAX_NAMED: usize = 10;

const OBJECTS: Family = Family::new(
    "knarr_unenforced_objects",
    "Objects that guard something and that nothing enforced when this server started, by resource.",
    &["group", "resource"],
);

/// Such objects of one resource.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    count: u32,
    /// Namespaces and names of the first.
    first: Vec<String>,
}

impl Found {
    fn add(&mut self, object: &Tree) {
        self.count += 1;
        if self.first.len() < MAX_NAMED {
            let (namespace, name) = (metadata::namespace(object), metadata::name(object));
            self.first.push(format!("{namespace}/{name}"));
        }
    }
}

/// Begins to look; the server serves meanwhile.
pub(super) fn name(facts: &Startup) -> BoxFuture<'_, Result<(), RegistryError>> {
    let own = facts.clone();
    let naming = async move { own.name_unenforced().await };
    facts.core.runtime.spawn("unenforced objects", naming).detach();
    Box::pin(async { Ok(()) })
}

impl Startup {
    async fn name_unenforced(&self) {
        let counts = self.core.runtime.metrics().gauges(&OBJECTS);
        let rows: Vec<_> = self.core.registry.rows().all().cloned().collect();
        let may_guard =
            |row: &&Arc<ResourceRow>| row.has_store && row.built_in.is_some_and(|kind| kind.may_be_refused());
        for row in rows.iter().filter(may_guard) {
            let (group, resource) = (&*row.gvk.group, &*row.plural);
            match self.unenforced(row).await {
                Ok(found) => {
                    counts.of(&[group, resource]).set(found.count.into());
                    if found.count > 0 {
                        let (objects, first) = (found.count, found.first);
                        tracing::warn!(
                            group,
                            resource,
                            objects,
                            ?first,
                            "stored objects guard nothing, since nothing enforces them"
                        );
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, group, resource, "listing unenforced objects failed")
                }
            }
        }
    }

    async fn unenforced(&self, row: &ResourceRow) -> Result<Found, RegistryError> {
        let mut found = Found::default();
        let (Some(kind), Some(store)) = (
            row.built_in,
            self.core
                .registry
                .store(&row.gvk.group, &row.gvk.version, &row.plural),
        ) else {
            return Ok(found);
        };
        let mut options = ListOptions {
            limit: PAGE,
            ..ListOptions::default()
        };
        loop {
            let page = store.list(&Scope::Cluster, &options).await?;
            for entry in &page.entries {
                // What cannot be read is named elsewhere.
                let object = store.decode(entry);
                if let Some(object) = object.ok().filter(|own| kind.refusal(own.root()).is_some()) {
                    found.add(&object);
                }
                tokio::task::yield_now().await;
            }
            if page.continue_token.is_empty() {
                return Ok(found);
            }
            options.continue_token = page.continue_token;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unenforced_objects_are_counted_and_the_first_named() {
        let mut found = Found::default();
        for number in 0..25 {
            let text = format!(r#"{{"metadata":{{"namespace":"a","name":"p{number}"}}}}"#);
            found.add(&Tree::from_json(&text).unwrap());
        }
        assert_eq!((found.count, found.first.len()), (25, MAX_NAMED));
        assert_eq!(found.first[9], "a/p9");
    }
}
