//! The schema of the facts: every type of every package, inlined structs flattened.

use super::CompileError;
use super::facts::{Field, Package, Type};
use machinery_schema::{FieldSpec, Group, ListType, MapType, Schema, SchemaBuilder, Shape, TypeId, Wire};
use std::collections::BTreeMap;

/// The schema, and the type of each `group/version/kind`.
pub(super) fn build(
    packages: &BTreeMap<String, Package>,
) -> Result<(Schema, BTreeMap<String, TypeId>), CompileError> {
    let mut build = Build {
        packages,
        builder: SchemaBuilder::new(),
        types: BTreeMap::new(),
    };
    let mut kinds = BTreeMap::new();
    for (package, types) in packages {
        for (name, ty) in &types.types {
            let id = build.type_named(&format!("{package}.{name}"), "facts")?;
            kinds.extend(ty.kinds.iter().map(|kind| (kind.clone(), id)));
        }
    }
    build.define_all()?;
    Ok((build.builder.finish()?, kinds))
}

struct Build<'f> {
    packages: &'f BTreeMap<String, Package>,
    builder: SchemaBuilder,
    types: BTreeMap<String, TypeId>,
}

impl<'f> Build<'f> {
    fn facts(&self, name: &str, owner: &str) -> Result<(&'f Package, &'f Type), CompileError> {
        let unknown = || CompileError::UnknownType {
            owner: owner.to_owned(),
            name: name.to_owned(),
        };
        let (package, own) = name.rsplit_once('.').ok_or_else(unknown)?;
        let package = self.packages.get(package).ok_or_else(unknown)?;
        Ok((package, package.types.get(own).ok_or_else(unknown)?))
    }

    /// The type of a name such as `core.v1.PodSpec`; structs are declared here and defined at the end.
    fn type_named(&mut self, name: &str, owner: &str) -> Result<TypeId, CompileError> {
        if let Some(known) = self.types.get(name) {
            return Ok(*known);
        }
        let (package, ty) = self.facts(name, owner)?;
        let go_name = go_name(package, name);
        let id = if ty.marker.is_empty() && ty.is.is_empty() {
            let id = self.builder.declare(name, &go_name);
            if ty.map_type == "atomic" {
                self.builder.type_mut(id).map_type = MapType::Atomic;
            }
            id
        } else if ty.is.is_empty() {
            self.marked(name, &ty.marker, &go_name)?
        } else {
            let item = self.expression(ty.is.trim_start_matches("[]"), owner)?;
            let id = self.builder.own(Shape::List, item, &go_name);
            self.builder.type_mut(id).wrapped = true;
            id
        };
        self.builder.alias(name, id);
        self.types.insert(name.to_owned(), id);
        Ok(id)
    }

    fn marked(&mut self, name: &str, marker: &str, go_name: &str) -> Result<TypeId, CompileError> {
        let shape = match marker {
            "Time" => Shape::Time,
            "MicroTime" => Shape::MicroTime,
            "Duration" => Shape::Duration,
            "Quantity" => Shape::Quantity,
            "IntOrString" => Shape::IntOrString,
            "RawExtension" | "FieldsV1" | "JSON" | "Object" => Shape::Raw,
            "JSONSchemaPropsOrArray" => return self.schema_or(name, Shape::SchemaOrArray),
            "JSONSchemaPropsOrBool" => return self.schema_or(name, Shape::SchemaOrBool),
            "JSONSchemaPropsOrStringArray" => return self.schema_or(name, Shape::SchemaOrStrings),
            other => return Err(problem(name, format!("unknown marker {other}"))),
        };
        Ok(self.builder.leaf(shape, go_name))
    }

    fn schema_or(&mut self, name: &str, shape: Shape) -> Result<TypeId, CompileError> {
        let package = name.rsplit_once('.').map_or("", |(package, _)| package);
        let schema = self.type_named(&format!("{package}.JSONSchemaProps"), name)?;
        Ok(self.builder.schema_or(shape, schema))
    }

    /// A Go type expression without its leading `*`.
    fn expression(&mut self, text: &str, owner: &str) -> Result<TypeId, CompileError> {
        if let Some(item) = text.strip_prefix("[]") {
            let item = self.expression(item.trim_start_matches('*'), owner)?;
            return Ok(self.builder.list(item));
        }
        if let Some(item) = text.strip_prefix("map[string]") {
            let item = self.expression(item.trim_start_matches('*'), owner)?;
            return Ok(self.builder.map(item));
        }
        match scalar(text) {
            Some((_, "")) => Ok(TypeId::ANY),
            Some((shape, go_name)) => Ok(self.builder.leaf(shape, go_name)),
            None => self.type_named(text, owner),
        }
    }

    fn define_all(&mut self) -> Result<(), CompileError> {
        for (package, types) in self.packages {
            for (name, ty) in &types.types {
                if !ty.marker.is_empty() || !ty.is.is_empty() {
                    continue;
                }
                let name = format!("{package}.{name}");
                let (mut specs, mut groups) = (Vec::new(), Vec::new());
                self.collect(&name, ty, 0, &mut specs, &mut groups)?;
                let id = self.type_named(&name, "facts")?;
                self.builder.define_struct(id, specs, &groups);
            }
        }
        Ok(())
    }

    /// The fields of a struct with those of its inlined structs in their places.
    fn collect(
        &mut self,
        owner: &str,
        ty: &'f Type,
        group: u8,
        specs: &mut Vec<FieldSpec>,
        groups: &mut Vec<Group>,
    ) -> Result<(), CompileError> {
        for field in &ty.fields {
            if !field.inline {
                let spec = self.field(owner, field, group)?;
                specs.push(spec);
                continue;
            }
            let (_, inner) = self.facts(field.r#type.trim_start_matches('*'), owner)?;
            if field.number == 0 {
                // Type meta is not part of the message; the envelope carries it.
                let before = specs.len();
                self.collect(owner, inner, group, specs, groups)?;
                specs[before..].iter_mut().for_each(|spec| spec.number = 0);
                continue;
            }
            let name = self.builder.intern(if field.go.is_empty() {
                &field.name
            } else {
                &field.go
            });
            groups.push(Group {
                name,
                number: field.number,
                parent: group,
            });
            let inlined =
                u8::try_from(groups.len()).map_err(|_| problem(owner, "too many inlined structs"))?;
            self.collect(owner, inner, inlined, specs, groups)?;
        }
        Ok(())
    }

    fn field(&mut self, owner: &str, field: &Field, group: u8) -> Result<FieldSpec, CompileError> {
        let pointer = field.r#type.starts_with('*');
        let text = field.r#type.trim_start_matches('*');
        let ty = match scalar(text) {
            Some((shape, _)) if !field.go_type.is_empty() => self.builder.leaf(shape, &field.go_type),
            _ => self.expression(text, owner)?,
        };
        let default = field
            .default
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        Ok(FieldSpec {
            name: field.name.clone(),
            ty,
            number: field.number,
            wire: wire(&field.wire)
                .ok_or_else(|| problem(owner, format!("{}: wire {}", field.name, field.wire)))?,
            pointer,
            omitempty: field.omit_empty,
            omitzero: field.omit_zero,
            required: field.required,
            group,
            list_type: list_type(&field.list_type),
            map_type: map_type(&field.map_type),
            map_keys: field.map_keys.clone(),
            patch_strategy: field.patch_strategy.clone(),
            patch_merge_key: field.patch_merge_key.clone(),
            default,
            enum_values: [&*field.r#enum, &*field.item_enum].concat(),
            format: field.format.clone(),
            feature_gate: field.feature_gates.join(","),
        })
    }
}

fn problem(owner: &str, problem: impl Into<String>) -> CompileError {
    CompileError::Field {
        owner: owner.to_owned(),
        problem: problem.into(),
    }
}

/// `v1.PodSpec`: the last segment of the package's path and the type's name, as Go prints it.
fn go_name(package: &Package, name: &str) -> String {
    let own = name.rsplit_once('.').map_or(name, |(_, own)| own);
    match own {
        "IntOrString" => "intstr.IntOrString".to_owned(),
        "RawExtension" | "Object" => format!("runtime.{own}"),
        _ => format!(
            "{}.{own}",
            package.go_package.rsplit('/').next().unwrap_or_default()
        ),
    }
}

/// Shapes of Go's own types, with Go's name; `any` has none.
fn scalar(text: &str) -> Option<(Shape, &'static str)> {
    Some(match text {
        "string" => (Shape::Str, "string"),
        "bool" => (Shape::Bool, "bool"),
        "int32" => (Shape::Int32, "int32"),
        "int64" => (Shape::Int64, "int64"),
        "int" => (Shape::Int64, "int"),
        "uint32" => (Shape::Uint32, "uint32"),
        "uint64" => (Shape::Uint64, "uint64"),
        "float64" => (Shape::Float, "float64"),
        "bytes" => (Shape::Bytes, "[]uint8"),
        "any" => (Shape::Any, ""),
        _ => return None,
    })
}

fn wire(text: &str) -> Option<Wire> {
    Some(match text {
        "" | "varint" => Wire::Varint,
        "bytes" => Wire::Bytes,
        "fixed64" => Wire::Fixed64,
        "fixed32" => Wire::Fixed32,
        _ => return None,
    })
}

fn list_type(text: &str) -> ListType {
    match text {
        "atomic" => ListType::Atomic,
        "set" => ListType::Set,
        "map" => ListType::Map,
        _ => ListType::Unset,
    }
}

fn map_type(text: &str) -> MapType {
    match text {
        "atomic" => MapType::Atomic,
        "granular" => MapType::Granular,
        _ => MapType::Unset,
    }
}
