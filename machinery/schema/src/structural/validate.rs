//! Values of a custom kind against its schema, in kube-openapi's order and words.

use super::bounds::{MAX_STEPS, Validation};
use super::lists::OldItems;
use super::{Constraints, format};
use crate::leaf::go_quote;
use crate::tree::{Kind, Ref};
use machinery_meta::field::Shown;
use machinery_meta::walked_path::WalkedPath;
use machinery_meta::{FieldError, FieldErrorKind, FieldPath};

/// Everything wrong with an object; with an old one, what did not change since is let pass.
pub fn validate(object: Ref<'_>, old: Option<Ref<'_>>) -> Vec<FieldError> {
    let mut found = Validation::new(MAX_STEPS);
    found.structure(object, old, &WalkedPath::ROOT);
    // Lists that had doubles before they had to be unique may keep them.
    if old.is_none_or(has_unique_items) {
        found.unique(object, &WalkedPath::ROOT);
    }
    found.finish()
}

fn has_unique_items(object: Ref<'_>) -> bool {
    let mut found = Validation::new(MAX_STEPS);
    found.unique(object, &WalkedPath::ROOT);
    found.errors.is_empty()
}

/// Everything wrong with the default of a value; paths begin at the value.
pub(super) fn validate_default(value: Ref<'_>) -> Vec<FieldError> {
    let mut found = Validation::new(MAX_STEPS);
    found.embedded(value, &WalkedPath::ROOT, &|_| Vec::new());
    if found.errors.is_empty() {
        found.structure(value, None, &WalkedPath::ROOT);
    }
    found.finish()
}

impl Validation {
    /// A value and what is below it, by the types of the schema.
    fn structure(&mut self, value: Ref<'_>, old: Option<Ref<'_>>, path: &WalkedPath<'_>) {
        if !self.step(0) || old.is_some_and(|old| old == value) && !path.is_root() {
            return;
        }
        let ty = value.schema().ty(value.ty());
        let constraints = value.schema().constraints(value.ty());
        if let Some(constraints) = constraints
            && !self.constraints(value, constraints, path)
        {
            return;
        }
        // Metadata and the like follow upstream's own types and are validated as such.
        if ty.typed && value.ty() != crate::TypeId::ANY {
            return;
        }
        match value.kind() {
            Kind::List => {
                let old = OldItems::of(old, constraints);
                for (index, item) in value.items().enumerate() {
                    if self.over {
                        break;
                    }
                    let old = old.as_ref().and_then(|old| old.get(item));
                    self.structure(item, old, &path.index(index));
                }
                if let Some(constraints) = constraints {
                    self.list(value, constraints, path);
                }
            }
            Kind::Map => {
                for (name, member) in value.entries() {
                    if self.over {
                        break;
                    }
                    self.structure(member, old.and_then(|old| old.get(name)), &path.child(name));
                }
            }
            _ => {}
        }
    }

    /// Notes a value's violations of one schema; returns false when the value is of another type altogether.
    pub(super) fn constraints(
        &mut self,
        value: Ref<'_>,
        schema: &Constraints,
        path: &WalkedPath<'_>,
    ) -> bool {
        if !self.step(0) {
            return false;
        }
        if !self.type_of(value, schema, path) {
            if matches!(value.kind(), Kind::Int | Kind::Float) {
                self.number(value, schema, path);
            }
            self.one_of_enum(value, schema, path);
            return false;
        }
        if value.is_null() {
            self.one_of_enum(value, schema, path);
            return true;
        }
        self.junctors(value, schema, path);
        match value.kind() {
            Kind::String => self.string(value.as_str().unwrap_or_default(), schema, path),
            Kind::Int | Kind::Float => self.number(value, schema, path),
            _ => {}
        }
        self.one_of_enum(value, schema, path);
        if value.kind() == Kind::Map {
            self.map(value, schema, path);
        }
        true
    }

    fn type_of(&mut self, value: Ref<'_>, schema: &Constraints, path: &WalkedPath<'_>) -> bool {
        if schema.types.is_empty() && schema.format.is_empty() {
            return true;
        }
        let (name, own_format) = match value.kind() {
            Kind::Null if schema.nullable || schema.types.is_empty() => return true,
            Kind::Null => ("null", ""),
            Kind::Bool => ("boolean", ""),
            Kind::Int => ("integer", "int64"),
            Kind::Float => ("number", "float64"),
            Kind::String | Kind::Raw => ("string", ""),
            Kind::List => ("array", ""),
            Kind::Map => ("object", ""),
        };
        let has = |name: &str| schema.types.contains(&name);
        let whole = value.kind() == Kind::Float && has("integer") && is_json_integer(value);
        let fits = has(name) || whole || name == "integer" && has("number");
        let text = matches!(value.kind(), Kind::String | Kind::List);
        let has_format = !schema.format.is_empty() && value.kind() != Kind::Null;
        if !text && has_format && !fits && own_format != schema.format {
            self.wrong_type(path, &schema.format, own_format);
            return false;
        }
        let numeric = has("number") || has("integer");
        if fits || text && has_format && !numeric {
            return true;
        }
        self.wrong_type(path, &schema.types.join(","), name);
        false
    }

    fn wrong_type(&mut self, path: &WalkedPath<'_>, wanted: &str, got: &str) {
        let detail = format!("{path} in body must be of type {wanted}: {}", go_quote(got));
        self.push(FieldError {
            kind: FieldErrorKind::TypeInvalid,
            path: path.to_path(),
            value: Some(go_quote(got)),
            detail,
        });
    }

    fn junctors(&mut self, value: Ref<'_>, schema: &Constraints, path: &WalkedPath<'_>) {
        if !schema.any_of.is_empty() {
            let (valid, best) = self.alternatives(value, &schema.any_of, path);
            if valid == 0 {
                self.sentence(format!("\"{path}\" must validate at least one schema (anyOf)"));
                self.take_over(best);
            }
        }
        if !schema.one_of.is_empty() {
            let (valid, best) = self.alternatives(value, &schema.one_of, path);
            if valid != 1 {
                let found = if valid == 0 {
                    "Found none valid".to_owned()
                } else {
                    format!("Found {valid} valid alternatives")
                };
                self.sentence(format!(
                    "\"{path}\" must validate one and only one schema (oneOf). {found}"
                ));
                if valid == 0 {
                    self.take_over(best);
                }
            }
        }
        if !schema.all_of.is_empty() {
            let mut valid = 0;
            for own in &schema.all_of {
                let found = self.problems(value, own, path);
                valid += usize::from(found.0.is_empty());
                self.take_over(found);
            }
            if valid != schema.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                self.sentence(format!("\"{path}\" must validate all the schemas (allOf){none}"));
            }
        }
        if let Some(not) = &schema.not
            && self.problems(value, not, path).0.is_empty()
            && !self.over
        {
            self.sentence(format!("\"{path}\" must not validate the schema (not)"));
        }
    }

    fn string(&mut self, text: &str, schema: &Constraints, path: &WalkedPath<'_>) {
        if !self.step(text.len()) {
            return;
        }
        let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        if let Some(max) = schema.max_length
            && length > max
        {
            self.push(FieldError::too_long(
                &path.to_path(),
                usize::try_from(max).unwrap_or(0),
            ));
        } else if let Some(min) = schema.min_length
            && length < min
        {
            self.invalid(
                path,
                go_quote(text),
                format!("{path} in body should be at least {min} chars long"),
            );
        } else if let Some(pattern) = &schema.pattern
            && !pattern.is_match(text)
        {
            self.invalid(
                path,
                go_quote(text),
                format!("{path} in body should match '{}'", pattern.text),
            );
        }
        if !schema.format.is_empty() && !format::is_valid(&schema.format, text) {
            let detail = format!(
                "{path} in body must be of type {}: {}",
                schema.format,
                go_quote(text)
            );
            let kind = FieldErrorKind::TypeInvalid;
            self.push(FieldError {
                kind,
                path: path.to_path(),
                value: Some(go_quote(text)),
                detail,
            });
        }
    }

    fn number(&mut self, value: Ref<'_>, schema: &Constraints, path: &WalkedPath<'_>) {
        let number = value.as_f64().unwrap_or(0.0);
        let out_of_range = match schema.types[..] {
            ["integer"] => !is_integer(value, &schema.format),
            ["number"] => schema.format == "float" && number.abs() > f64::from(f32::MAX),
            _ => false,
        };
        if out_of_range {
            let ty = schema.types[0];
            let form = match schema.format.as_str() {
                "" => "(default format)".to_owned(),
                format => format!("with format {format}"),
            };
            self.sentence(format!("Checked value must be of type {ty} {form} in {path}"));
        }
        if let Some(factor) = schema.multiple_of
            && factor > 0.0
            && (number / factor).fract() != 0.0
        {
            self.invalid(
                path,
                printed(value),
                format!("{path} in body should be a multiple of {}", bound(value, factor)),
            );
        }
        if let Some(max) = schema.maximum {
            let words = if schema.exclusive_maximum {
                "less than"
            } else {
                "less than or equal to"
            };
            if number > max || (schema.exclusive_maximum && number >= max) {
                self.invalid(
                    path,
                    printed(value),
                    format!("{path} in body should be {words} {}", bound(value, max)),
                );
            }
        }
        if let Some(min) = schema.minimum {
            let words = if schema.exclusive_minimum {
                "greater than"
            } else {
                "greater than or equal to"
            };
            if number < min || (schema.exclusive_minimum && number <= min) {
                self.invalid(
                    path,
                    printed(value),
                    format!("{path} in body should be {words} {}", bound(value, min)),
                );
            }
        }
    }

    fn list(&mut self, value: Ref<'_>, schema: &Constraints, path: &WalkedPath<'_>) {
        let count = i64::try_from(value.len()).unwrap_or(i64::MAX);
        if let Some(min) = schema.min_items
            && count < min
        {
            self.invalid(
                path,
                count.to_string(),
                format!("{path} in body should have at least {min} items"),
            );
        }
        if let Some(max) = schema.max_items
            && count > max
        {
            let max = usize::try_from(max).unwrap_or(0);
            self.push(FieldError::too_many(&path.to_path(), value.len(), max));
        }
        if let Some(items) = &schema.items {
            for (index, item) in value.items().enumerate() {
                if self.over {
                    break;
                }
                self.constraints(item, items, &path.index(index));
            }
        }
    }

    fn map(&mut self, value: Ref<'_>, schema: &Constraints, path: &WalkedPath<'_>) {
        let count = i64::try_from(value.len()).unwrap_or(i64::MAX);
        if let Some(min) = schema.min_properties
            && count < min
        {
            self.invalid(
                path,
                count.to_string(),
                format!("{path} in body should have at least {min} properties"),
            );
        }
        if let Some(max) = schema.max_properties
            && count > max
        {
            let max = usize::try_from(max).unwrap_or(0);
            self.push(FieldError::too_many(&path.to_path(), value.len(), max));
        }
        for (name, own) in &schema.properties {
            if self.over {
                break;
            }
            if let Some(member) = value.get(name) {
                self.constraints(member, own, &path.child(name));
            }
        }
        for name in &schema.required {
            if value.get(name).is_none() {
                self.push(FieldError::required(&path.child(name).to_path(), ""));
            }
        }
    }

    fn one_of_enum(&mut self, value: Ref<'_>, schema: &Constraints, path: &WalkedPath<'_>) {
        if !self.step(16 * schema.enum_values.len()) {
            return;
        }
        if schema.enum_values.is_empty()
            || schema
                .enum_values
                .iter()
                .any(|own| is_enum_value(own.root(), value))
        {
            return;
        }
        if value.is_null() && schema.nullable {
            return;
        }
        let values: Vec<String> = schema
            .enum_values
            .iter()
            .map(|own| {
                own.root()
                    .as_str()
                    .map_or_else(|| own.root().to_json(), str::to_owned)
            })
            .collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        self.push(FieldError::not_supported(&path.to_path(), shown(value), &values));
    }

    fn invalid(&mut self, path: &WalkedPath<'_>, value: String, detail: String) {
        let kind = FieldErrorKind::Invalid;
        self.push(FieldError {
            kind,
            path: path.to_path(),
            value: Some(value),
            detail,
        });
    }

    /// Upstream's composite messages stand at the root, with an empty value.
    fn sentence(&mut self, detail: String) {
        let (kind, path) = (FieldErrorKind::Invalid, FieldPath::root());
        self.push(FieldError {
            kind,
            path,
            value: Some("\"\"".to_owned()),
            detail,
        });
    }
}

/// A value as field errors print it.
pub(super) fn shown(value: Ref<'_>) -> Shown {
    Shown(value.as_str().map_or_else(|| printed(value), go_quote))
}

/// A value as JSON, but numbers with a fraction as Go prints them.
fn printed(value: Ref<'_>) -> String {
    match value.as_f64() {
        Some(number) if value.kind() == Kind::Float => go_float(number),
        _ => value.to_json(),
    }
}

/// A bound beside a value, which is whole where the value is.
fn bound(value: Ref<'_>, bound: f64) -> String {
    match value.kind() {
        Kind::Int => bound.to_string(),
        _ => go_float(bound),
    }
}

/// A number as Go's `%v` has it: with an exponent where that is below -4 or above 5.
fn go_float(number: f64) -> String {
    let text = format!("{number:e}");
    let Some((digits, exponent)) = text.split_once('e') else {
        return text;
    };
    match exponent.parse::<i32>() {
        Ok(power) if !(-4..6).contains(&power) => {
            let sign = if power < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", power.abs())
        }
        _ => number.to_string(),
    }
}

/// Reports whether a number is one that JSON's readers agree is whole.
fn is_json_integer(value: Ref<'_>) -> bool {
    const MOST: f64 = 9_007_199_254_740_991.0;
    let number = value.as_f64().unwrap_or(0.5);
    number.fract() == 0.0 && number.abs() <= MOST
}

/// Reports whether a value is one of an enum. Numbers are compared as numbers of the enum's type.
fn is_enum_value(of_enum: Ref<'_>, value: Ref<'_>) -> bool {
    match (of_enum.kind(), value.kind()) {
        (Kind::Int, Kind::Float) => {
            let whole = value.as_f64().map(f64::trunc);
            whole.is_some_and(|whole| of_enum.as_f64() == Some(whole))
        }
        (Kind::Float, Kind::Int) => of_enum.as_f64() == value.as_f64(),
        _ => of_enum == value,
    }
}

/// Reports whether a number is one of the integers of a format.
fn is_integer(value: Ref<'_>, format: &str) -> bool {
    let (low, high) = match format {
        "int32" => (i128::from(i32::MIN), i128::from(i32::MAX)),
        _ => (i128::from(i64::MIN), i128::from(i64::MAX)),
    };
    // Written without an exponent, as the rule reads it.
    let text = match value.as_i64() {
        Some(number) => number.to_string(),
        None => value.as_f64().unwrap_or(0.0).to_string(),
    };
    text.parse::<i128>()
        .is_ok_and(|number| (low..=high).contains(&number))
}
