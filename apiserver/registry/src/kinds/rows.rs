//! The rows of all built-in kinds: what the generated table says, and what each kind says itself.

use super::{find, subresources};
use crate::engine::kind::Kind;
use crate::engine::kind_strategy::KindStrategy;
use crate::engine::row::{ResourceRow, StoredForm, record_fingerprint, storage_version_hash};
use crate::engine::verbs::{Verb, Verbs};
use crate::shared::columns::{Columns, headers_of};
use machinery_api::KindInfo;
use machinery_schema::{Additions, TypeId};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// Rows of every GA kind.
pub fn built_in_rows() -> Vec<ResourceRow> {
    machinery_api::table().kinds().iter().map(row).collect()
}

fn row(info: &'static KindInfo) -> ResourceRow {
    let gvk = info.gvk.clone();
    let schema = Arc::clone(machinery_api::schema());
    let kind = find(&gvk.group, &info.plural);
    let kind = kind.unwrap_or_else(|| panic!("{}/{} has no folder", gvk.group, info.plural));
    let stored = stored_form(kind, info);
    let has_store = info.etcd_prefix.is_some();
    ResourceRow {
        plural: info.plural.clone(),
        singular: info.singular.clone(),
        short_names: info.short_names.clone(),
        categories: info.categories.clone(),
        list_kind: format!("{}List", gvk.kind),
        namespaced: info.namespaced,
        verbs: verbs(&info.verbs),
        subresources: info
            .subresources
            .iter()
            .map(|sub| subresources::row(info, sub))
            .collect(),
        ty: info.ty,
        schema,
        custom: false,
        built_in: Some(kind),
        columns: columns_of(kind, &gvk.version),
        selectable: (kind.selectable)().into(),
        strategy: Arc::new(KindStrategy {
            kind,
            default_lines: default_lines().get(&info.ty),
        }),
        has_store,
        openapi_schema: None,
        terminating: machinery_runtime::CancellationToken::new(),
        superseded: machinery_runtime::CancellationToken::new(),
        deprecation_warning: kind.deprecation.map(str::to_owned),
        storage_version_hash: if !has_store {
            String::new()
        } else {
            storage_version_hash(&stored.gvk)
        },
        stored,
        gvk,
    }
}

/// The columns of one version of a kind.
fn columns_of(kind: &Kind, version: &str) -> Columns {
    let headers = headers_of(&format!("{}/{version}/{}", kind.group, kind.plural));
    match (headers, kind.columns) {
        (Some(headers), Some(cells)) => Columns {
            order: kind.list_order,
            completed: kind.completed,
            ..Columns::new(headers, cells)
        },
        _ => Columns::name_and_created(),
    }
}

/// Lines of defaults of every kind that has any, by the type of its objects.
fn default_lines() -> &'static BTreeMap<TypeId, Additions> {
    static COMPILED: OnceLock<BTreeMap<TypeId, Additions>> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let table = machinery_api::table();
        let kinds = table.kinds().iter().filter_map(|info| {
            let kind = find(&info.gvk.group, &info.plural)?;
            Some((info.ty, kind.compiled_defaults(table.schema(), info.ty)))
        });
        kinds.filter(|(_, lines)| !lines.is_empty()).collect()
    })
}

pub(super) fn verbs(names: &[String]) -> Verbs {
    Verbs::of(names.iter().filter_map(|name| Verb::parse(name)))
}

/// Two addresses of one stored object share its form.
fn stored_form(kind: &Kind, info: &'static KindInfo) -> StoredForm {
    let table = machinery_api::table();
    let other = kind.stored_as.filter(|other| other.version == info.gvk.version);
    let own = other.map_or(info, |other| {
        let (group, version) = other.stored;
        let stored = table.kind(group, version, &info.gvk.kind);
        stored.expect("the table has the stored form")
    });
    let stored = find(&own.gvk.group, &own.plural).expect("the stored kind is in the list");
    StoredForm {
        prefix: format!("/registry/{}/", own.etcd_prefix.as_deref().unwrap_or(&own.plural)),
        gvk: own.gvk.clone(),
        schema: Arc::clone(table.schema()),
        ty: own.ty,
        fingerprint: record_fingerprint(table.schema(), &(stored.selectable)()),
        conversion: other.map(|other| (other.conversion)()),
        webhook: None,
    }
}
