//! Admission policies and their bindings, by their events, and the parameters that they read.

use crate::followed::{self, Compiled};
use apiserver_admission::policies::{
    Binding, MutatingPolicy, ParamSource, Policies, PolicyProblem, ValidatingPolicy, hooks,
};
use apiserver_admission::{AdmissionError, Host};
use apiserver_registry::options::{ListOptions, RevisionMatch};
use apiserver_registry::{Registry, RegistryError, Scope, Store};
use async_trait::async_trait;
use machinery_meta::label_selector::LabelSelector;
use machinery_meta::{GroupVersionKind, Predicate};
use machinery_runtime::Runtime;
use machinery_schema::Tree;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Bytes of all stored parameters of one binding for one request; decoded they take several times as many.
const MAX_PARAM_BYTES: usize = 4 << 20;

type ByName<T> = BTreeMap<String, Arc<T>>;

/// Policies of one kind and their bindings, of which either may change.
struct Pairs<P> {
    policies: ByName<P>,
    bindings: ByName<Binding>,
}

impl<P> Default for Pairs<P> {
    fn default() -> Self {
        Self {
            policies: ByName::new(),
            bindings: ByName::new(),
        }
    }
}

struct Known {
    target: Arc<Policies>,
    mutating: Mutex<Pairs<MutatingPolicy>>,
    validating: Mutex<Pairs<ValidatingPolicy>>,
}

/// Reads all policies and bindings, then follows their changes in tasks of the runtime's scope.
pub(crate) async fn start(
    registry: &Registry,
    policies: &Arc<Policies>,
    runtime: &Runtime,
) -> Result<(), RegistryError> {
    let known = Arc::new(Known {
        target: Arc::clone(policies),
        mutating: Mutex::default(),
        validating: Mutex::default(),
    });
    followed::start(registry, Mutating(Arc::clone(&known)), runtime).await?;
    followed::start(registry, MutatingBindings(Arc::clone(&known)), runtime).await?;
    followed::start(registry, Validating(Arc::clone(&known)), runtime).await?;
    followed::start(registry, ValidatingBindings(known), runtime).await
}

struct Mutating(Arc<Known>);

impl Compiled for Mutating {
    type Item = MutatingPolicy;
    type Problem = PolicyProblem;

    fn plural(&self) -> &'static str {
        "mutatingadmissionpolicies"
    }

    fn compile(&self, name: &str, json: &[u8]) -> Result<Arc<MutatingPolicy>, PolicyProblem> {
        MutatingPolicy::compile(name, json).map(Arc::new)
    }

    fn publish(&self, policies: ByName<MutatingPolicy>) {
        let mut pairs = self.0.mutating.lock();
        pairs.policies = policies;
        self.0
            .target
            .set_mutating(hooks(&pairs.policies, &pairs.bindings));
    }
}

struct MutatingBindings(Arc<Known>);

impl Compiled for MutatingBindings {
    type Item = Binding;
    type Problem = PolicyProblem;

    fn plural(&self) -> &'static str {
        "mutatingadmissionpolicybindings"
    }

    fn compile(&self, name: &str, json: &[u8]) -> Result<Arc<Binding>, PolicyProblem> {
        Binding::compile(name, json).map(Arc::new)
    }

    fn publish(&self, bindings: ByName<Binding>) {
        let mut pairs = self.0.mutating.lock();
        pairs.bindings = bindings;
        self.0
            .target
            .set_mutating(hooks(&pairs.policies, &pairs.bindings));
    }
}

struct Validating(Arc<Known>);

impl Compiled for Validating {
    type Item = ValidatingPolicy;
    type Problem = PolicyProblem;

    fn plural(&self) -> &'static str {
        "validatingadmissionpolicies"
    }

    fn compile(&self, name: &str, json: &[u8]) -> Result<Arc<ValidatingPolicy>, PolicyProblem> {
        ValidatingPolicy::compile(name, json).map(Arc::new)
    }

    fn publish(&self, policies: ByName<ValidatingPolicy>) {
        let mut pairs = self.0.validating.lock();
        pairs.policies = policies;
        self.0
            .target
            .set_validating(hooks(&pairs.policies, &pairs.bindings));
    }
}

struct ValidatingBindings(Arc<Known>);

impl Compiled for ValidatingBindings {
    type Item = Binding;
    type Problem = PolicyProblem;

    fn plural(&self) -> &'static str {
        "validatingadmissionpolicybindings"
    }

    fn compile(&self, name: &str, json: &[u8]) -> Result<Arc<Binding>, PolicyProblem> {
        Binding::compile(name, json).map(Arc::new)
    }

    fn publish(&self, bindings: ByName<Binding>) {
        let mut pairs = self.0.validating.lock();
        pairs.bindings = bindings;
        self.0
            .target
            .set_validating(hooks(&pairs.policies, &pairs.bindings));
    }
}

/// Parameters, read from the registry: by what is in memory, as upstream's informers, and by storage where that knows of no such object.
pub(crate) struct Params(Registry);

impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Params").finish_non_exhaustive()
    }
}

impl Params {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self(registry.clone())
    }

    fn store(&self, kind: &GroupVersionKind) -> Option<Store> {
        let rows = self.0.rows();
        let row = rows.all().find(|row| row.has_store && row.gvk == *kind)?;
        self.0.store(&kind.group, &kind.version, &row.plural)
    }

    fn served(&self, kind: &GroupVersionKind) -> Result<Store, AdmissionError> {
        let store = self.store(kind);
        store.ok_or_else(|| {
            AdmissionError::Internal(format!(
                "no matches for kind {:?} in version {:?}",
                kind.kind,
                kind.api_version()
            ))
        })
    }
}

#[async_trait]
impl ParamSource for Params {
    fn is_namespaced(&self, kind: &GroupVersionKind) -> Option<bool> {
        self.store(kind).map(|store| store.row.namespaced)
    }

    async fn get(
        &self,
        kind: &GroupVersionKind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Tree>, AdmissionError> {
        let (store, scope) = (self.served(kind)?, Scope::of(namespace));
        for revision in [RevisionMatch::Any, RevisionMatch::MostRecent] {
            match store.get(&scope, name, revision).await {
                Ok(entry) => {
                    return store
                        .decode(&entry)
                        .map(Some)
                        .map_err(AdmissionError::of_registry);
                }
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(AdmissionError::of_registry(error)),
            }
        }
        Ok(None)
    }

    async fn list(
        &self,
        kind: &GroupVersionKind,
        namespace: &str,
        selector: &LabelSelector,
        most: usize,
        host: &dyn Host,
    ) -> Result<Vec<Tree>, AdmissionError> {
        let store = self.served(kind)?;
        let options = ListOptions {
            predicate: Predicate {
                labels: selector.clone(),
                ..Predicate::default()
            },
            revision: RevisionMatch::Any,
            limit: most,
            ..ListOptions::default()
        };
        let page = store.list(&Scope::of(namespace), &options).await;
        let page = page.map_err(AdmissionError::of_registry)?;
        if page.record_bytes() > MAX_PARAM_BYTES {
            return Err(AdmissionError::Internal(format!(
                "paramRef selects objects of more than {MAX_PARAM_BYTES} bytes"
            )));
        }
        host.heavy_from(page.record_bytes()).await?;
        let decoded = page.entries.iter().map(|entry| store.decode(entry));
        decoded
            .collect::<Result<_, _>>()
            .map_err(AdmissionError::of_registry)
    }
}
