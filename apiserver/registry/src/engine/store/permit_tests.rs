//! Permits that are for something else than what is written.

use super::*;
use crate::engine::admission::{SystemDoors, SystemWriter};
use crate::engine::operation_options::OperationOptions;
use crate::kinds;
use apiserver_storage::LogStorage;
use machinery_meta::{GroupVersionKind, GroupVersionResource, UserInfo};
use machinery_runtime::Simulation;
use machinery_schema::{Strictness, decode_json};

/// Write for which a permit is requested.
fn attributes(operation: Operation, (group, resource): (&str, &str), place: (&str, &str)) -> Attributes {
    let (namespace, name) = place;
    Attributes {
        operation,
        kind: GroupVersionKind::new(group, "v1", "Whatever"),
        resource: GroupVersionResource::new(group, "v1", resource),
        built_in: None,
        subresource: String::new(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        addressed: false,
        dry_run: false,
        options: OperationOptions::None,
    }
}

struct World {
    ctx: RequestContext,
    door: Door<'static>,
    store: Store,
    object: Tree,
}

impl World {
    async fn permit(&self, door: Door<'_>, attributes: Attributes) -> Result<Admitted, RegistryError> {
        let mut object = self.object.clone();
        let mutated = door.mutate(&self.ctx, attributes, &mut object, None).await?;
        mutated.validate(&self.ctx, &object, None).await
    }

    fn key(&self) -> Key {
        self.store.key(&Scope::of("ours"), "a").unwrap()
    }

    /// Reports whether the config map `ours/a` is created with a permit for this.
    async fn creates(&self, attributes: Attributes) -> bool {
        let permit = self.permit(self.door, attributes).await.unwrap();
        let write = self.store.put(
            self.key(),
            self.store.encode(&self.object).unwrap(),
            Expect::Absent,
        );
        match self.store.commit(&self.ctx, &permit, write, Vec::new()).await {
            Ok(_) => true,
            Err(RegistryError::Internal(why)) => {
                assert_eq!(why, "the write is not the one that was admitted");
                false
            }
            Err(other) => panic!("{other}"),
        }
    }
}

fn story<S: Future<Output = ()> + Send + 'static>(tell: impl FnOnce(World) -> S + Send + 'static) {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let storage: Arc<dyn Storage> = Arc::new(LogStorage::memory(&runtime).await.unwrap());
        let registry = Registry::new(Arc::clone(&storage), runtime.clone(), kinds::built_in());
        let store = registry.preferred_store("", "configmaps").unwrap();
        let json = br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"ours"}}"#;
        let object = decode_json(&store.row.schema, store.row.ty, json, Strictness::Report);
        tell(World {
            ctx: RequestContext::internal(UserInfo::named("tester", [UserInfo::MASTERS]), runtime),
            door: SystemDoors::of(&storage).door(SystemWriter::Startup),
            object: object.unwrap().tree,
            store,
        })
        .await;
    });
}

#[test]
fn permit_is_for_one_operation_on_one_object() {
    story(async |world: World| {
        let create = Operation::Create;
        let maps = ("", "configmaps");
        for other in [
            attributes(create, ("", "secrets"), ("ours", "a")),
            attributes(create, ("apps", "configmaps"), ("ours", "a")),
            attributes(create, maps, ("theirs", "a")),
            attributes(create, maps, ("ours", "b")),
            attributes(Operation::Update, maps, ("ours", "a")),
            attributes(Operation::Delete, maps, ("ours", "a")),
            attributes(Operation::Connect, maps, ("ours", "a")),
            Attributes {
                dry_run: true,
                ..attributes(create, maps, ("ours", "a"))
            },
        ] {
            assert!(!world.creates(other.clone()).await, "{other:?}");
        }
        assert!(world.creates(attributes(create, maps, ("ours", "a"))).await);
        // Nor does the permit of a create remove what is there.
        let live = world.store.read_entry(&world.key()).await.unwrap().unwrap();
        let permit = world
            .permit(world.door, attributes(create, maps, ("ours", "a")))
            .await;
        let write = Write::delete(world.key(), live.revision);
        let refused = world
            .store
            .commit(&world.ctx, &permit.unwrap(), write, Vec::new())
            .await;
        assert!(matches!(refused, Err(RegistryError::Internal(_))));
    });
}

#[test]
fn permit_of_an_eviction_opens_its_budgets_status_alone() {
    story(async |world: World| {
        let eviction = |subresource: &str| Attributes {
            subresource: subresource.to_owned(),
            ..attributes(Operation::Create, ("", "pods"), ("ours", "p"))
        };
        let binding = world.permit(world.door, eviction("binding")).await.unwrap();
        assert!(matches!(
            binding.disruption_budget(),
            Err(RegistryError::Internal(_))
        ));
        let eviction = world.permit(world.door, eviction("eviction")).await.unwrap();
        let door = eviction.disruption_budget().unwrap();
        let of = |resource: (&str, &str), subresource: &str| Attributes {
            subresource: subresource.to_owned(),
            ..attributes(Operation::Update, resource, ("ours", "x"))
        };
        let budgets = ("policy", "poddisruptionbudgets");
        world.permit(door, of(budgets, "status")).await.unwrap();
        for other in [
            of(budgets, ""),
            of(("", "secrets"), ""),
            of(("", "pods"), "status"),
        ] {
            let refused = world.permit(door, other.clone()).await;
            assert!(matches!(refused, Err(RegistryError::Internal(_))), "{other:?}");
        }
    });
}
