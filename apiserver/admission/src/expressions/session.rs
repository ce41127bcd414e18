//! Values of variables in one evaluation; those of the policy are evaluated when they are requested, once.

use super::questions::Answers;
use super::{Expression, Inputs, Variables};
use machinery_cel::{
    Activation, Check, Data, ErrorKind, EvalError, Evaluated, Fields, Interrupt, Limits, Map, Opaque,
    Subject, Value,
};
use machinery_schema::Tree;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Depth of all expressions that wait for each other, since they share a stack. One alone has at most 400.
const MAX_DEPTH: usize = 500;
/// Stack of a variable beside its expression, as a depth.
const DEPTH_OF_VARIABLE: usize = 10;

/// See the module. Values of variables borrow from the session that they are kept in, so that all of it lives equally long.
pub(super) struct Session<'a> {
    object: Value<'a>,
    old_object: Value<'a>,
    namespace: Value<'a>,
    request: Value<'a>,
    params: Value<'a>,
    authorizer: Value<'a>,
    request_resource: Value<'a>,
    variables: Option<&'a Variables>,
    /// By place; a variable that is under way has no value yet.
    known: Vec<Known<'a>>,
    /// Depth of the variables that are under way.
    depth: AtomicUsize,
    /// Cost of variables since it was read last.
    spent: AtomicU64,
    /// Steps of variables, which costs do not count.
    worked: AtomicU64,
    budget: u64,
    interrupt: Arc<dyn Interrupt>,
    view: OnceLock<View<'a>>,
}

#[derive(Default)]
struct Known<'a> {
    value: OnceLock<Evaluated<'a>>,
    is_under_way: AtomicBool,
}

/// The variables of a session, as the engine sees them.
pub(super) struct View<'a>(&'a Session<'a>);

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

fn value(object: Option<&Tree>) -> Value<'_> {
    object.map_or(Value::Null, |own| Data::from(own.root()).value())
}

impl<'a> Session<'a> {
    pub(super) fn new(inputs: &Inputs<'a>, answers: &'a Answers<'_>, budget: u64) -> Self {
        let subject = Subject {
            authorizer: answers,
            service_account: None,
        };
        let own = inputs.selection.request;
        let resource = Check {
            group: own.group.to_owned(),
            resource: own.resource.to_owned(),
            subresource: own.subresource.to_owned(),
            namespace: inputs.selection.namespace().to_owned(),
            name: own.name.to_owned(),
            ..Check::default()
        };
        let count = inputs.variables.map_or(0, |own| own.list.len());
        Self {
            object: value(inputs.objects.new),
            old_object: value(inputs.objects.old),
            namespace: inputs
                .namespace
                .map_or(Value::Null, |own| Data::from(own).value()),
            request: Data::from(inputs.request).value(),
            params: value(inputs.params),
            authorizer: Value::Opaque(Arc::new(Opaque::Authorizer(subject.clone()))),
            request_resource: Value::Opaque(Arc::new(Opaque::ResourceCheck(subject, resource))),
            variables: inputs.variables,
            known: (0..count).map(|_| Known::default()).collect(),
            depth: AtomicUsize::new(0),
            spent: AtomicU64::new(0),
            worked: AtomicU64::new(0),
            budget,
            interrupt: answers.interrupt(),
            view: OnceLock::new(),
        }
    }

    pub(super) fn view(&'a self) -> &'a View<'a> {
        self.view.get_or_init(|| View(self))
    }

    pub(super) fn take_spent(&self) -> u64 {
        self.spent.swap(0, Ordering::Relaxed)
    }

    pub(super) fn take_worked(&self) -> u64 {
        self.worked.swap(0, Ordering::Relaxed)
    }

    fn variable(&'a self, name: &str) -> Option<Evaluated<'a>> {
        let variables = self.variables?;
        let at = *variables.places.get(name)?;
        let known = &self.known[at];
        if let Some(value) = known.value.get() {
            return Some(value.clone());
        }
        // A later variable of the same name takes the place of the one that it was written with.
        if known.is_under_way.swap(true, Ordering::Relaxed) {
            return Some(Err(EvalError::new(format!("variable {name:?} refers to itself"))));
        }
        let value = self.evaluated(name, &variables.list[at]);
        let _ = known.value.set(value.clone());
        Some(value)
    }

    fn evaluated(&'a self, name: &str, expression: &'a Expression) -> Evaluated<'a> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(why) => {
                return Err(EvalError::new(format!(
                    "composited variable {name:?} fails to compile: {why}"
                )));
            }
        };
        if self.spent.load(Ordering::Relaxed) > self.budget {
            let mut error = EvalError::new("operation cancelled: actual cost limit exceeded");
            error.kind = ErrorKind::CostLimit;
            return Err(error);
        }
        let depth = program.depth() + DEPTH_OF_VARIABLE;
        let above = self.depth.fetch_add(depth, Ordering::Relaxed);
        if above + depth > MAX_DEPTH {
            self.depth.fetch_sub(depth, Ordering::Relaxed);
            let why = format!("variables that wait for each other have more than {MAX_DEPTH} nested nodes");
            return Err(EvalError::new(why));
        }
        let limits = Limits {
            interrupt: Some(Arc::clone(&self.interrupt)),
            ..Limits::default()
        };
        let done = program.evaluate(self.view(), &limits);
        self.depth.fetch_sub(depth, Ordering::Relaxed);
        self.spent.fetch_add(done.cost, Ordering::Relaxed);
        self.worked.fetch_add(done.work, Ordering::Relaxed);
        done.value.map_err(|error| {
            let mut failed =
                EvalError::new(format!("composited variable {name:?} fails to evaluate: {error}"));
            // What is evaluated again, or holds too much, is no matter of the expression.
            if matches!(error.kind, ErrorKind::Interrupted | ErrorKind::ResourceLimit) {
                failed.kind = error.kind;
            }
            failed
        })
    }
}

impl Activation for View<'_> {
    fn resolve<'s>(&'s self, name: &str) -> Option<Evaluated<'s>> {
        let own = self.0;
        let value = match name {
            "object" => &own.object,
            "oldObject" => &own.old_object,
            "namespaceObject" => &own.namespace,
            "request" => &own.request,
            "params" => &own.params,
            "authorizer" => &own.authorizer,
            "authorizer.requestResource" => &own.request_resource,
            "variables" => return Some(Ok(Value::Map(Map::Fields(own.view())))),
            _ => return None,
        };
        Some(Ok(value.clone()))
    }
}

impl Fields for View<'_> {
    fn get<'s>(&'s self, name: &str) -> Option<Evaluated<'s>> {
        self.0.variable(name)
    }

    fn names(&self) -> Vec<String> {
        let variables = self.0.variables;
        variables.map_or_else(Vec::new, |own| own.places.keys().cloned().collect())
    }
}
