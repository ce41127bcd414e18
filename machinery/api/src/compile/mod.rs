//! From facts to blob. `cargo xtask codegen` calls [`compile`] with the files of `facts/`.
//!
//! [`facts`] is the form of the files, [`types`] builds the schema, this file adds kinds and groups.

mod facts;
mod types;

use crate::table::{MAGIC, type_key};
use facts::{Package, Resources};
use machinery_schema::table::blob::{self, Writer};
use machinery_schema::{SchemaError, TypeId};
use std::collections::BTreeMap;
use std::io::Read;

/// Resources of `additions/`, whose types stand among those of the facts.
pub const ADDED_RESOURCES: &str = "added_resources.json";

/// The facts do not make a table.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    #[error("reading facts/{file}")]
    File {
        file: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("facts/{0} is missing")]
    Missing(&'static str),
    #[error("{owner} refers to {name}, which is not in the facts")]
    UnknownType { owner: String, name: String },
    #[error("{owner}: {problem}")]
    Field { owner: String, problem: String },
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

/// Makes the blob of the table. `files` are the facts by path below `facts/` (`types/core.v1.json`), and those of
/// `additions/` as if they stood there, its resources under [`ADDED_RESOURCES`].
pub fn compile(files: &BTreeMap<String, String>) -> Result<Vec<u8>, CompileError> {
    let mut packages = BTreeMap::new();
    for (path, text) in files {
        if let Some(name) = path
            .strip_prefix("types/")
            .and_then(|name| name.strip_suffix(".json"))
        {
            packages.insert(name.to_owned(), parse::<Package>(path, text)?);
        }
    }
    let text = files
        .get("resources.json")
        .ok_or(CompileError::Missing("resources.json"))?;
    let mut resources: Resources = parse("resources.json", text)?;
    if let Some(text) = files.get(ADDED_RESOURCES) {
        let added: Resources = parse(ADDED_RESOURCES, text)?;
        resources.groups.extend(added.groups);
        resources.resources.extend(added.resources);
    }
    let (schema, kinds) = types::build(&packages)?;
    let mut out = Writer(MAGIC.to_vec());
    out.bytes(&blob::write(&schema));
    out.count(kinds.len());
    for (name, id) in &kinds {
        out.bytes(name.as_bytes());
        out.u32(id.0);
    }
    write_resources(&mut out, &resources, &kinds)?;
    let text = files
        .get("feature_gates.json")
        .ok_or(CompileError::Missing("feature_gates.json"))?;
    let gates: BTreeMap<String, (bool, String, bool)> = parse("feature_gates.json", text)?;
    out.count(gates.len());
    for (name, (default, stage, locked)) in &gates {
        out.bytes(name.as_bytes());
        out.bytes(stage.as_bytes());
        out.flags(&[*default, *locked]);
    }
    Ok(out.0)
}

/// Descriptions of a type and its fields: one line of those that the facts tool writes.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct Words {
    model: String,
    description: Option<String>,
    fields: BTreeMap<String, String>,
}

/// Packs the descriptions that the facts tool writes, one model on a line.
///
/// # Errors
/// [`CompileError::File`] where a line is not of their form.
pub fn pack_descriptions(lines: &str) -> Result<Vec<u8>, CompileError> {
    let mut words = BTreeMap::new();
    for line in lines.lines() {
        let own: Words = parse("descriptions.jsonl", line)?;
        words.insert(own.model, (own.description, own.fields));
    }
    let json = serde_json::json!(words).to_string();
    let mut out = Vec::new();
    let mut encoder = flate2::read::DeflateEncoder::new(json.as_bytes(), flate2::Compression::best());
    // Reading from memory into memory cannot fail.
    let _ = encoder.read_to_end(&mut out);
    Ok(out)
}

fn parse<'t, T: serde::Deserialize<'t>>(file: &str, text: &'t str) -> Result<T, CompileError> {
    serde_json::from_str(text).map_err(|source| CompileError::File {
        file: file.to_owned(),
        source,
    })
}

fn write_resources(
    out: &mut Writer,
    resources: &Resources,
    kinds: &BTreeMap<String, TypeId>,
) -> Result<(), CompileError> {
    out.count(resources.groups.len());
    for group in &resources.groups {
        out.bytes(group.name.as_bytes());
        write_texts(out, &group.versions);
    }
    out.count(resources.resources.len());
    for resource in &resources.resources {
        let key = type_key(&resource.group, &resource.version, &resource.kind);
        if !kinds.contains_key(&key) {
            return Err(CompileError::UnknownType {
                owner: "resources.json".to_owned(),
                name: key,
            });
        }
        for text in [
            &resource.group,
            &resource.version,
            &resource.kind,
            &resource.resource,
            &resource.singular,
        ] {
            out.bytes(text.as_bytes());
        }
        out.flags(&[resource.namespaced, resource.etcd_prefix.is_some()]);
        for texts in [&resource.verbs, &resource.short_names, &resource.categories] {
            write_texts(out, texts);
        }
        out.bytes(resource.etcd_prefix.as_deref().unwrap_or_default().as_bytes());
        write_subresources(out, resource);
    }
    Ok(())
}

/// A subresource without a group version of its own has the resource's.
fn write_subresources(out: &mut Writer, resource: &facts::Resource) {
    out.count(resource.subresources.len());
    for subresource in &resource.subresources {
        let (group, version) = if subresource.version.is_empty() {
            (&resource.group, &resource.version)
        } else {
            (&subresource.group, &subresource.version)
        };
        for text in [&subresource.name, group, version, &subresource.kind] {
            out.bytes(text.as_bytes());
        }
        write_texts(out, &subresource.verbs);
    }
}

fn write_texts(out: &mut Writer, texts: &[String]) {
    out.count(texts.len());
    texts.iter().for_each(|text| out.bytes(text.as_bytes()));
}
