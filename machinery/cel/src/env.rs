//! Declarations that expressions may refer to: variables with their types, and types of objects.

use crate::types::Type;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Types of objects and of their fields, beside those that every environment has.
pub trait Provider: std::fmt::Debug + Send + Sync {
    /// Reports whether there is a type of objects with this name.
    fn has_type(&self, name: &str) -> bool;
    /// Type of a field of a type.
    fn field(&self, type_name: &str, field: &str) -> Option<Type>;
}

/// Variables and types that an expression may use.
///
/// Functions and macros are those that Kubernetes 1.37 lets new expressions use.
#[derive(Debug, Clone, Default)]
pub struct Env {
    pub(crate) variables: HashMap<String, Type>,
    pub(crate) providers: Vec<Arc<dyn Provider>>,
    pub(crate) features: Features,
}

/// Parts of the language beyond Kubernetes' environment for validations.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Features {
    /// `Object{}` and `JSONPatch{}`, `jsonpatch.escapeKey` (mutating admission policies).
    pub(crate) mutation: bool,
    /// `cel.bind`, which cel-spec has, and Kubernetes in selectors of devices alone.
    pub(crate) bind: bool,
    /// Lists and maps of values of several types.
    pub(crate) mixed_literals: bool,
    /// Functions that 1.37 adds: expressions may use them from the next release on, so that a server of the last one
    /// still reads all that is stored (upstream's `DefaultCompatibilityVersion`).
    pub(crate) newest: bool,
}

impl Env {
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a variable.
    #[must_use]
    pub fn variable(mut self, name: &str, ty: Type) -> Self {
        self.variables.insert(name.to_owned(), ty);
        self
    }

    /// Adds types of objects.
    #[must_use]
    pub fn types(mut self, provider: Arc<dyn Provider>) -> Self {
        self.providers.push(provider);
        self
    }

    /// Allows objects and JSON patches to be made, as mutating admission policies do.
    #[must_use]
    pub fn with_mutation(mut self) -> Self {
        self.features.mutation = true;
        self
    }

    /// Allows what is stored already to use functions that are too new for new expressions (upstream's `StoredExpressions`).
    #[must_use]
    pub fn for_stored(mut self) -> Self {
        self.features.newest = true;
        self
    }

    /// Allows `cel.bind`, as selectors of devices do.
    #[must_use]
    pub(crate) fn with_bind(mut self) -> Self {
        self.features.bind = true;
        self
    }

    /// Allows `cel.bind` and lists and maps of values of several types, as cel-spec does.
    #[must_use]
    pub fn with_spec_extensions(mut self) -> Self {
        self.features.bind = true;
        self.features.mixed_literals = true;
        self
    }

    pub(crate) fn has_type(&self, name: &str) -> bool {
        self.features.mutation && is_mutation_type(name)
            || self.providers.iter().any(|own| own.has_type(name))
    }

    pub(crate) fn field(&self, name: &str, field: &str) -> Option<Type> {
        if self.features.mutation && is_mutation_type(name) {
            return match (name, field) {
                (JSON_PATCH, "op" | "path" | "from") => Some(Type::String),
                (JSON_PATCH, "value") => Some(Type::Dyn),
                (JSON_PATCH, _) => None,
                _ => Some(Type::Dyn),
            };
        }
        self.providers.iter().find_map(|own| own.field(name, field))
    }
}

pub(crate) const JSON_PATCH: &str = "JSONPatch";

fn is_mutation_type(name: &str) -> bool {
    name == JSON_PATCH || name == "Object" || name.starts_with("Object.")
}

/// A few types of objects with the types of their fields.
#[derive(Debug, Clone, Default)]
pub struct ObjectTypes {
    types: BTreeMap<String, BTreeMap<String, Type>>,
}

impl ObjectTypes {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a type.
    #[must_use]
    pub fn with(mut self, name: &str, fields: &[(&str, Type)]) -> Self {
        let fields = fields.iter().map(|(name, ty)| ((*name).to_owned(), ty.clone()));
        self.types.insert(name.to_owned(), fields.collect());
        self
    }
}

impl Provider for ObjectTypes {
    fn has_type(&self, name: &str) -> bool {
        self.types.contains_key(name)
    }

    fn field(&self, type_name: &str, field: &str) -> Option<Type> {
        self.types.get(type_name)?.get(field).cloned()
    }
}
