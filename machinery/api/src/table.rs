//! Table of built-in kinds, decoded from the blob.

use machinery_meta::{GroupKind, GroupVersion, GroupVersionKind, GroupVersionResource};
use machinery_schema::table::blob::{self, Reader};
use machinery_schema::{DisabledFields, Schema, SchemaError, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

pub(crate) const MAGIC: &[u8; 4] = b"knA1";

/// A group with the versions it is served in; the first is preferred.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedGroup {
    pub name: String,
    pub versions: Vec<String>,
}

/// One resource of a group version: everything the rest of the server needs to know about a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindInfo {
    pub gvk: GroupVersionKind,
    /// `pods`.
    pub plural: String,
    /// `pod`.
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    pub verbs: Vec<String>,
    pub subresources: Vec<Subresource>,
    /// Prefix below `/registry/` under which upstream stores it; `None` if it is not stored.
    pub etcd_prefix: Option<String>,
    /// The type of one object.
    pub ty: TypeId,
    /// The type of the list kind, where there is one.
    pub list_ty: Option<TypeId>,
}

/// A subresource; its kind has a group version of its own where it differs (`autoscaling/v1` `Scale`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subresource {
    pub name: String,
    pub gvk: GroupVersionKind,
    pub verbs: Vec<String>,
    /// The type of its body, where the table has it.
    pub ty: Option<TypeId>,
}

impl KindInfo {
    pub fn gvr(&self) -> GroupVersionResource {
        GroupVersionResource::new(&self.gvk.group, &self.gvk.version, &self.plural)
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|own| own.name == name)
    }

    fn is_in(&self, group: &str, version: &str) -> bool {
        self.gvk.group == group && self.gvk.version == version
    }

    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|own| own == verb)
    }
}

/// A feature gate as upstream's server of this release has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureGate {
    pub name: String,
    pub default: bool,
    /// `ALPHA`, `BETA`, `GA`, `DEPRECATED`.
    pub stage: String,
    /// The default cannot be changed.
    pub locked: bool,
}

/// All built-in kinds: their types, groups and resources.
#[derive(Debug)]
pub struct Table {
    schema: Arc<Schema>,
    groups: Vec<ServedGroup>,
    kinds: Vec<KindInfo>,
    types: HashMap<String, TypeId>,
    gates: Vec<FeatureGate>,
    disabled: OnceLock<DisabledFields>,
}

/// Kinds that are registered in every group version.
const EVERYWHERE: [&str; 7] = [
    "DeleteOptions",
    "ListOptions",
    "GetOptions",
    "CreateOptions",
    "UpdateOptions",
    "PatchOptions",
    "Status",
];

impl Table {
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Groups in discovery's order, the core group (`""`) first.
    pub fn groups(&self) -> &[ServedGroup] {
        &self.groups
    }

    /// All resources in discovery's order.
    pub fn kinds(&self) -> &[KindInfo] {
        &self.kinds
    }

    /// The resources of a group version.
    pub fn kinds_of<'a>(&'a self, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a KindInfo> {
        self.kinds.iter().filter(move |kind| kind.is_in(group, version))
    }

    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<&KindInfo> {
        self.kinds
            .iter()
            .find(|own| own.gvk.kind == kind && own.is_in(group, version))
    }

    /// Finds a kind by its lower-case plural, as paths name it.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&KindInfo> {
        self.kinds
            .iter()
            .find(|own| own.plural == plural && own.is_in(group, version))
    }

    /// The preferred version's row of a group kind.
    pub fn preferred(&self, group_kind: &GroupKind) -> Option<&KindInfo> {
        let group = self.groups.iter().find(|own| own.name == group_kind.group)?;
        group
            .versions
            .iter()
            .find_map(|version| self.kind(&group.name, version, &group_kind.kind))
    }

    /// The type of any known kind: objects, lists, options, bodies of subresources.
    pub fn type_of(&self, group: &str, version: &str, kind: &str) -> Option<TypeId> {
        let name = type_key(group, version, kind);
        let found = self.types.get(&name).copied();
        found.or_else(|| {
            EVERYWHERE
                .contains(&kind)
                .then(|| self.types.get(&type_key("", "v1", kind)).copied())?
        })
    }

    /// All feature gates, sorted by name.
    pub fn feature_gates(&self) -> &[FeatureGate] {
        &self.gates
    }

    /// Reports whether a gate is on by default; a gate that upstream has removed is on.
    pub fn gate_default(&self, name: &str) -> bool {
        let found = self.gates.binary_search_by(|own| own.name.as_str().cmp(name));
        found.map_or(true, |found| self.gates[found].default)
    }

    /// The fields of built-in kinds that are not stored, because their gates are off by default; found on first use.
    pub fn disabled_fields(&self) -> &DisabledFields {
        self.disabled
            .get_or_init(|| self.fields_disabled_by(|gate| self.gate_default(gate)))
    }

    /// The fields of built-in kinds that are not stored where gates are in these states.
    pub fn fields_disabled_by(&self, is_enabled: impl Fn(&str) -> bool) -> DisabledFields {
        DisabledFields::of(&self.schema, is_enabled)
    }

    /// Every known kind as `group/version/kind` (core: `v1/Pod`), with its type.
    pub fn all_types(&self) -> impl Iterator<Item = (&str, TypeId)> {
        self.types.iter().map(|(key, id)| (key.as_str(), *id))
    }

    /// Reads what [`compile`](crate::compile::compile) wrote.
    pub fn read(bytes: &[u8]) -> Result<Self, SchemaError> {
        let mut input = Reader(bytes);
        if input.take(4)? != MAGIC {
            return Err(SchemaError::Blob("it does not begin as a table of kinds"));
        }
        let length = input.u32()? as usize;
        let schema = blob::read(input.take(length)?)?;
        let types = input.list(|input| Ok((input.text()?.to_owned(), type_id(input, &schema)?)))?;
        let groups = input.list(|input| {
            Ok(ServedGroup {
                name: text(input)?,
                versions: texts(input)?,
            })
        })?;
        let types: HashMap<String, TypeId> = types.into_iter().collect();
        let kinds = input.list(|input| read_kind(input, &types))?;
        let gates = input.list(|input| {
            let (name, stage) = (text(input)?, text(input)?);
            let [default, locked, ..] = input.flags()?;
            Ok(FeatureGate {
                name,
                default,
                stage,
                locked,
            })
        })?;
        Ok(Self {
            schema: Arc::new(schema),
            groups,
            kinds,
            types,
            gates,
            disabled: OnceLock::new(),
        })
    }
}

/// `apps/v1/Deployment`, `v1/Pod`.
pub(crate) fn type_key(group: &str, version: &str, kind: &str) -> String {
    format!("{}/{kind}", GroupVersion::new(group, version))
}

fn read_kind(input: &mut Reader<'_>, types: &HashMap<String, TypeId>) -> Result<KindInfo, SchemaError> {
    let gvk = read_gvk(input)?;
    let (plural, singular) = (text(input)?, text(input)?);
    let [namespaced, stored, ..] = input.flags()?;
    let (verbs, short_names, categories) = (texts(input)?, texts(input)?, texts(input)?);
    let prefix = text(input)?;
    let subresources = input.list(|input| {
        let (name, gvk, verbs) = (text(input)?, read_gvk(input)?, texts(input)?);
        let ty = types.get(&type_key(&gvk.group, &gvk.version, &gvk.kind)).copied();
        Ok(Subresource { name, gvk, verbs, ty })
    })?;
    let type_named = |kind: &str| types.get(&type_key(&gvk.group, &gvk.version, kind)).copied();
    let ty = type_named(&gvk.kind).ok_or(SchemaError::Blob("a kind without a type"))?;
    let list_ty = type_named(&format!("{}List", gvk.kind));
    let etcd_prefix = stored.then_some(prefix);
    Ok(KindInfo {
        gvk,
        plural,
        singular,
        short_names,
        categories,
        namespaced,
        verbs,
        subresources,
        etcd_prefix,
        ty,
        list_ty,
    })
}

fn read_gvk(input: &mut Reader<'_>) -> Result<GroupVersionKind, SchemaError> {
    Ok(GroupVersionKind {
        group: text(input)?,
        version: text(input)?,
        kind: text(input)?,
    })
}

fn text(input: &mut Reader<'_>) -> Result<String, SchemaError> {
    input.text().map(str::to_owned)
}

fn texts(input: &mut Reader<'_>) -> Result<Vec<String>, SchemaError> {
    input.list(text)
}

fn type_id(input: &mut Reader<'_>, schema: &Schema) -> Result<TypeId, SchemaError> {
    let id = TypeId(input.u32()?);
    if (id.0 as usize) < schema.type_count() {
        Ok(id)
    } else {
        Err(SchemaError::Blob("a type that is not there"))
    }
}
