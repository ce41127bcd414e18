//! Selectors of devices (upstream's `dynamic-resource-allocation/cel`): an expression over `device`, of DeviceClasses and of
//! requests in ResourceClaims.
//!
//! The variable has `driver`, `allowMultipleAllocations`, and `attributes` and `capacity` by domain and name; a domain that
//! the device does not have is an empty map. `cel.bind` is available here alone.

#[cfg(test)]
mod tests;

use crate::cost::Sizes;
use crate::env::{Env, ObjectTypes};
use crate::eval::{Limits, Variables};
use crate::library::{Scaled, parse_semver};
use crate::program::{ExpressionProblem, Program};
use crate::types::Type;
use crate::value::{Evaluated, Fields, Map, Opaque, Value};
use machinery_meta::Quantity;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// Most that one evaluation may cost, and that it may be estimated to cost (upstream's `CELSelectorExpressionMaxCost`).
pub const DEVICE_SELECTOR_MAX_COST: u64 = 1_000_000;

const VARIABLE: &str = "device";
const TYPE: &str = "kubernetes.DRADevice";
/// Attributes and capacities of one device.
const MAX_ENTRIES: u64 = 32;
const MAX_DOMAIN: u64 = 63;
const MAX_NAME: u64 = 32;
const MAX_DRIVER: u64 = 63;
const MAX_VALUE: u64 = 64;

static NEW: LazyLock<Env> = LazyLock::new(env);
static STORED: LazyLock<Env> = LazyLock::new(|| env().for_stored());

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceAttribute {
    Int(i64),
    Bool(bool),
    String(Box<str>),
    /// A semantic version.
    Version(Box<str>),
    /// Of a type that is not known here.
    Unsupported,
}

/// A selector, ready to be evaluated.
#[derive(Debug)]
pub struct DeviceSelector {
    program: Program,
    max_cost: u64,
}

/// The answer of a selector.
#[derive(Debug)]
pub struct DeviceMatch {
    /// Reports whether the device is selected, or why that is not known, in upstream's words.
    pub matches: Result<bool, String>,
    /// Cost of the evaluation with the steps that the cost does not count.
    pub steps: u64,
}

/// A device as the value of the variable, made once for many selectors.
#[derive(Debug)]
pub struct DeviceValue(Device);

impl DeviceSelector {
    /// Compiles an expression: a new one, or one that is stored already, which may use newer functions.
    ///
    /// # Errors
    /// See [`ExpressionProblem`].
    pub fn compile(text: &str, stored: bool) -> Result<Self, ExpressionProblem> {
        let env = if stored { &STORED } else { &NEW };
        let compiled = env
            .compile(text)
            .map_err(|issues| ExpressionProblem::Invalid(format!("compilation failed: {issues}")))?;
        let ty = compiled.ty();
        if !matches!(ty, Type::Bool | Type::Any) {
            let found = ty.value_text();
            let problem = format!("must evaluate to bool or the unknown type, not {found}");
            return Err(ExpressionProblem::Invalid(problem));
        }
        let program = compiled.program();
        Ok(Self {
            max_cost: compiled.estimate(&DeviceSizes).max,
            program: program
                .map_err(|why| ExpressionProblem::Internal(format!("program instantiation failed: {why}")))?,
        })
    }

    /// Most that an evaluation is estimated to cost.
    pub fn max_cost(&self) -> u64 {
        self.max_cost
    }

    /// Evaluates the selector for a device.
    pub fn matches(&self, device: &DeviceValue) -> DeviceMatch {
        let variables = Variables::new().with(VARIABLE, Value::Map(Map::Fields(&device.0)));
        let limits = Limits {
            cost: DEVICE_SELECTOR_MAX_COST,
            interrupt: None,
        };
        let found = self.program.evaluate(&variables, &limits);
        let matches = match found.value {
            Ok(Value::Bool(own)) => Ok(own),
            Ok(other) => {
                let name = other.ty().value_text();
                Err(format!(
                    "CEL result of type {name} could not be converted to bool"
                ))
            }
            Err(error) => Err(enhanced(error.to_string())),
        };
        DeviceMatch {
            matches,
            steps: found.cost.saturating_add(found.work),
        }
    }
}

/// The message with upstream's advice (`EnhanceRuntimeError`).
fn enhanced(message: String) -> String {
    if message.starts_with("no such key:") {
        return format!(
            "{message}. Consider using CEL optional chaining (?), has() macro, or orValue() for optional fields"
        );
    }
    message
}

fn env() -> Env {
    let by_domain = |value: Type| Type::map(Type::String, Type::map(Type::String, value));
    let fields = [
        ("driver", Type::String),
        ("allowMultipleAllocations", Type::Bool),
        ("attributes", by_domain(Type::Any)),
        ("capacity", by_domain(Type::object("kubernetes.Quantity"))),
    ];
    Env::new()
        .with_bind()
        .types(Arc::new(ObjectTypes::new().with(TYPE, &fields)))
        .variable(VARIABLE, Type::object(TYPE))
}

#[derive(Debug)]
struct Device {
    driver: Box<str>,
    allow_multiple: bool,
    attributes: ByDomain,
    capacity: ByDomain,
}

impl Fields for Device {
    fn get<'s>(&'s self, name: &str) -> Option<Evaluated<'s>> {
        Some(Ok(match name {
            "driver" => Value::string(&self.driver),
            "allowMultipleAllocations" => Value::Bool(self.allow_multiple),
            "attributes" => Value::Map(Map::Fields(&self.attributes)),
            "capacity" => Value::Map(Map::Fields(&self.capacity)),
            _ => return None,
        }))
    }

    fn names(&self) -> Vec<String> {
        ["driver", "allowMultipleAllocations", "attributes", "capacity"]
            .map(str::to_owned)
            .into()
    }
}

/// Values by domain; every domain can be had, most of them empty.
#[derive(Debug, Default)]
struct ByDomain {
    domains: BTreeMap<Box<str>, Named>,
    empty: Named,
}

#[derive(Debug, Default)]
struct Named(BTreeMap<Box<str>, Value<'static>>);

impl Fields for ByDomain {
    fn get<'s>(&'s self, name: &str) -> Option<Evaluated<'s>> {
        let found = self.domains.get(name).unwrap_or(&self.empty);
        Some(Ok(Value::Map(Map::Fields(found))))
    }

    fn has(&self, name: &str) -> bool {
        self.domains.contains_key(name)
    }

    fn names(&self) -> Vec<String> {
        self.domains.keys().map(|own| own.to_string()).collect()
    }
}

impl Fields for Named {
    fn get<'s>(&'s self, name: &str) -> Option<Evaluated<'s>> {
        self.0.get(name).cloned().map(Ok)
    }

    fn names(&self) -> Vec<String> {
        self.0.keys().map(|own| own.to_string()).collect()
    }
}

impl ByDomain {
    /// Adds a value; a name without a domain is of the driver's, where one that says so counts more.
    fn add(&mut self, driver: &str, name: &str, value: Value<'static>) {
        let (domain, name, explicit) = match name.split_once('/') {
            Some((domain, name)) => (domain, name, true),
            None => (driver, name, false),
        };
        let names = &mut self.domains.entry(domain.into()).or_default().0;
        if explicit || !names.contains_key(name) {
            names.insert(name.into(), value);
        }
    }
}

impl DeviceValue {
    /// Makes the value of a device.
    ///
    /// # Errors
    /// An attribute that has no value is named, as upstream names it.
    pub fn new<'a>(
        driver: &str,
        allow_multiple: bool,
        attributes: impl IntoIterator<Item = (&'a str, &'a DeviceAttribute)>,
        capacity: impl IntoIterator<Item = (&'a str, Quantity)>,
    ) -> Result<Self, String> {
        let mut device = Device {
            driver: driver.into(),
            allow_multiple,
            attributes: ByDomain::default(),
            capacity: ByDomain::default(),
        };
        for (name, attribute) in attributes {
            let value = match attribute {
                DeviceAttribute::Int(own) => Value::Int(*own),
                DeviceAttribute::Bool(own) => Value::Bool(*own),
                DeviceAttribute::String(own) => Value::owned(&**own),
                DeviceAttribute::Version(own) => match parse_semver(own) {
                    Ok(version) => Value::opaque(Opaque::Semver(version)),
                    Err(why) => return Err(format!("attribute {name}: parse semantic version: {why}")),
                },
                DeviceAttribute::Unsupported => {
                    return Err(format!("attribute {name}: unsupported attribute value"));
                }
            };
            device.attributes.add(driver, name, value);
        }
        for (name, amount) in capacity {
            let value = Value::opaque(Opaque::Quantity(Scaled::of(amount)));
            device.capacity.add(driver, name, value);
        }
        Ok(Self(device))
    }
}

/// Greatest sizes of what the variable has, by upstream's declarations.
struct DeviceSizes;

impl Sizes for DeviceSizes {
    fn max_size(&self, path: &[&str]) -> Option<u64> {
        let is_item = |step: &str| matches!(step, "@items" | "@values");
        match path {
            [VARIABLE, "driver"] => Some(MAX_DRIVER),
            [VARIABLE, "attributes" | "capacity"] => Some(MAX_ENTRIES),
            [VARIABLE, "attributes" | "capacity", "@keys"] => Some(MAX_DOMAIN),
            [VARIABLE, "attributes" | "capacity", item] if is_item(item) => Some(MAX_ENTRIES),
            [VARIABLE, "attributes" | "capacity", item, "@keys"] if is_item(item) => Some(MAX_NAME),
            [VARIABLE, "attributes", item, _] if is_item(item) => Some(MAX_VALUE),
            _ => None,
        }
    }
}
