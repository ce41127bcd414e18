//! Optional values.

use super::Function;
use crate::value::{Evaluated, List, Value};

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "optional.of" => |_, args| args.first().map(|own| Ok(Value::some(own.clone()))),
        "optional.ofNonZeroValue" => |_, args| {
            let own = args.first()?;
            Some(Ok(match own.is_zero() {
                true => Value::Optional(None),
                false => Value::some(own.clone()),
            }))
        },
        "optional.none" => |_, _| Some(Ok(Value::Optional(None))),
        "value" => |_, args| match args {
            [Value::Optional(Some(own))] => Some(Ok((**own).clone())),
            [Value::Optional(None)] => super::fail("optional.none() dereference"),
            _ => None,
        },
        "hasValue" => |_, args| match args {
            [Value::Optional(own)] => super::yes(own.is_some()),
            _ => None,
        },
        "first" => |_, args| match args {
            [Value::List(own)] => Some(element(own, 0)),
            _ => None,
        },
        "last" => |_, args| match args {
            [Value::List(own)] => Some(element(own, own.len().wrapping_sub(1))),
            _ => None,
        },
        "optional.unwrap" | "unwrapOpt" => |meter, args| {
            let [Value::List(list)] = args else { return None };
            let mut out = Vec::new();
            for own in list.iter() {
                match own {
                    Ok(Value::Optional(Some(own))) => out.push((*own).clone()),
                    Ok(Value::Optional(None)) => {}
                    Ok(other) => return super::fail(format!("value {} is not optional", other.shown())),
                    Err(error) => return Some(Err(error)),
                }
            }
            Some(super::list(out, meter))
        },
        _ => return None,
    })
}

fn element<'a>(list: &List<'a>, at: usize) -> Evaluated<'a> {
    Ok(match list.get(at).transpose()? {
        Some(own) => Value::some(own),
        None => Value::Optional(None),
    })
}
