//! Questions to the authorizer.

use super::{Function, fail, yes};
use crate::value::{Check, Decision, Evaluated, Opaque, Subject, Value};
use machinery_meta::syntax;
use std::sync::Arc;

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "path" => |_, args| match parts(args)? {
            (Opaque::Authorizer(own), path) if path.trim().is_empty() => {
                let _ = own;
                fail("path must not be empty")
            }
            (Opaque::Authorizer(own), path) => made(Opaque::PathCheck(own.clone(), path.to_owned())),
            _ => None,
        },
        "group" => |_, args| match parts(args)? {
            (Opaque::Authorizer(own), group) => made(Opaque::GroupCheck(own.clone(), group.to_owned())),
            _ => None,
        },
        "serviceAccount" => service_account,
        "resource" => |_, args| match parts(args)? {
            (Opaque::GroupCheck(..), resource) if resource.trim().is_empty() => {
                fail("resource must not be empty")
            }
            (Opaque::GroupCheck(own, group), resource) => {
                let check = Check {
                    group: group.clone(),
                    resource: resource.to_owned(),
                    ..Check::default()
                };
                made(Opaque::ResourceCheck(own.clone(), check))
            }
            _ => None,
        },
        "subresource" => |_, args| with(args, |check, own| check.subresource = own),
        "namespace" => |_, args| with(args, |check, own| check.namespace = own),
        "name" => |_, args| with(args, |check, own| check.name = own),
        "fieldSelector" => |_, args| with(args, |check, own| check.field_selector = own),
        "labelSelector" => |_, args| with(args, |check, own| check.label_selector = own),
        "check" => |_, args| match parts(args)? {
            (Opaque::PathCheck(own, path), verb) => {
                let check = Check {
                    path: Some(path.clone()),
                    ..Check::default()
                };
                decided(own, &check, verb)
            }
            (Opaque::ResourceCheck(own, check), verb) => decided(own, check, verb),
            _ => None,
        },
        "allowed" => |_, args| yes(decision(args)?.allowed),
        "errored" => |_, args| yes(decision(args)?.error.is_some()),
        "error" => |_, args| {
            let error = decision(args)?.error.clone();
            Some(Ok(Value::owned(error.unwrap_or_default())))
        },
        "reason" => |_, args| Some(Ok(Value::owned(decision(args)?.reason.as_str()))),
        _ => return None,
    })
}

#[expect(clippy::unnecessary_wraps, reason = "the form of a function's result")]
fn made<'a>(own: Opaque<'a>) -> Option<Evaluated<'a>> {
    Some(Ok(Value::opaque(own)))
}

/// The receiver of a function, and its string.
fn parts<'v, 'a>(args: &'v [Value<'a>]) -> Option<(&'v Opaque<'a>, &'v str)> {
    match args {
        [Value::Opaque(own), Value::String(text)] => Some((own, text.as_str())),
        _ => None,
    }
}

fn with<'a>(args: &[Value<'a>], set: fn(&mut Check, String)) -> Option<Evaluated<'a>> {
    match parts(args)? {
        (Opaque::ResourceCheck(own, check), text) => {
            let mut check = check.clone();
            set(&mut check, text.to_owned());
            made(Opaque::ResourceCheck(own.clone(), check))
        }
        _ => None,
    }
}

fn service_account<'a>(_: &mut crate::eval::Meter, args: &[Value<'a>]) -> Option<Evaluated<'a>> {
    let [Value::Opaque(own), Value::String(namespace), Value::String(name)] = args else {
        return None;
    };
    let Opaque::Authorizer(own) = &**own else {
        return None;
    };
    if !syntax::dns1123_subdomain(name.as_str()).is_empty() {
        return fail("Invalid service account name");
    }
    if !syntax::dns1123_label(namespace.as_str()).is_empty() {
        return fail("Invalid service account namespace");
    }
    made(Opaque::Authorizer(Subject {
        authorizer: own.authorizer,
        service_account: Some((Arc::from(namespace.as_str()), Arc::from(name.as_str()))),
    }))
}

fn decided<'a>(own: &Subject<'a>, check: &Check, verb: &str) -> Option<Evaluated<'a>> {
    let account = own.service_account.as_ref();
    let account = account.map(|(namespace, name)| (&**namespace, &**name));
    made(Opaque::Decision(own.authorizer.authorize(account, check, verb)))
}

fn decision<'v>(args: &'v [Value<'_>]) -> Option<&'v Decision> {
    match args {
        [Value::Opaque(own)] => match &**own {
            Opaque::Decision(own) => Some(own),
            _ => None,
        },
        _ => None,
    }
}
