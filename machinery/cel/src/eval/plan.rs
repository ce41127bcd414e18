//! The form of an expression that is evaluated.

use crate::cost::CallRule;
use crate::library::Function;
use crate::value::{Key, Value};
use std::collections::HashSet;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) enum Node {
    Const(Value<'static>),
    Attribute(Box<Attribute>),
    /// `has`; the last qualifier is what is requested.
    Test(Box<Attribute>),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    Equal(Box<[Node; 2]>, bool),
    Call(Box<Call>),
    /// `in` a list of constants.
    Member(Box<(Node, HashSet<Key<'static>>)>),
    /// `or` and `orValue` of optionals.
    OrElse(Box<[Node; 2]>, bool),
    List(Box<ListNode>),
    Map(Box<[MapEntryNode]>),
    Object(Box<ObjectNode>),
    Fold(Box<Fold>),
}

#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) base: Base,
    pub(crate) qualifiers: Vec<Qualifier>,
}

#[derive(Debug)]
pub(crate) enum Base {
    /// A variable of the environment, by its place among those that the program uses.
    Variable(usize),
    /// A variable of a loop, by its place on the stack.
    Local(usize),
    Relative(Node),
    Conditional(Box<(Node, Attribute, Attribute)>),
}

#[derive(Debug)]
pub(crate) struct Qualifier {
    pub(crate) key: QualifierKey,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) enum QualifierKey {
    Const(Value<'static>),
    /// A variable, whose own access costs nothing here.
    Attribute(Attribute),
    Node(Node),
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) name: Arc<str>,
    pub(crate) args: Vec<Node>,
    pub(crate) run: Runner,
    pub(crate) rule: CallRule,
    /// Arguments after one that failed are not evaluated, and the call costs nothing then.
    pub(crate) in_turn: bool,
    /// The value of an argument that failed is requested as well.
    pub(crate) lenient: bool,
}

/// Work of a call.
#[derive(Debug)]
pub(crate) enum Runner {
    Function(Function),
    /// A function of a pattern that is a constant.
    Pattern(PatternUse, machinery_schema::structural::Search),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum PatternUse {
    Matches,
    Find,
    FindAll,
}

#[derive(Debug)]
pub(crate) struct ListNode {
    pub(crate) elements: Vec<Node>,
    pub(crate) optional: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct MapEntryNode {
    pub(crate) key: Node,
    pub(crate) value: Node,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) struct ObjectNode {
    pub(crate) type_name: Arc<str>,
    pub(crate) fields: Vec<(Arc<str>, Node, bool)>,
}

/// A loop; its accumulator and variables are consecutive on the stack.
#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) range: Node,
    pub(crate) two: bool,
    pub(crate) slot: usize,
    pub(crate) init: Node,
    pub(crate) condition: Node,
    pub(crate) step: Step,
    pub(crate) result: Node,
}

/// Work on each element.
#[derive(Debug)]
pub(crate) enum Step {
    Other(Node),
    /// Elements are added to the accumulator, where the filter holds.
    Append(Option<Node>, Node),
    /// A key and a value, or a map, are added to the accumulator, where the filter holds.
    Insert(Option<Node>, Vec<Node>),
}
