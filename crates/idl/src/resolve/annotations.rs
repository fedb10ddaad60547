//! Annotations: which are known, where they belong, and their parameters.
use super::Resolver;
use super::scope::{ScopeId, nearest};
use crate::fault::{IdlFault, IdlNotice};
use crate::model::{Extensibility, Value};
use crate::source::Place;
use crate::syntax::{Annotation, Expression, ExpressionKind};

/// The kind of definition that an annotation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Module,
    Struct,
    Union,
    Enum,
    Bitmask,
    Typedef,
    Constant,
    Forward,
    Member,
    Case,
    Discriminator,
    Literal,
    Bit,
}

impl Target {
    fn word(self) -> &'static str {
        match self {
            Target::Module => "a module",
            Target::Struct => "a structure",
            Target::Union => "a union",
            Target::Enum => "an enumeration",
            Target::Bitmask => "a bitmask",
            Target::Typedef => "a `typedef`",
            Target::Constant => "a constant",
            Target::Forward => "a declaration",
            Target::Member => "a member of a structure",
            Target::Case => "a member of a union",
            Target::Discriminator => "a discriminator",
            Target::Literal => "a literal",
            Target::Bit => "a bit",
        }
    }
}

/// The annotations of one definition, checked.
#[derive(Debug, Default)]
pub(super) struct Annotations<'a> {
    pub(super) key: Option<Place>,
    pub(super) id: Option<(u32, Place)>,
    pub(super) hash_id: Option<(String, Place)>,
    pub(super) optional: Option<Place>,
    pub(super) must_understand: bool,
    pub(super) external: bool,
    pub(super) default: Option<&'a Expression>,
    pub(super) default_literal: Option<Place>,
    pub(super) value: Option<&'a Expression>,
    pub(super) position: Option<&'a Expression>,
    pub(super) bit_bound: Option<&'a Expression>,
    pub(super) extensibility: Option<(Extensibility, &'a str, Place)>,
    pub(super) nested: Option<bool>,
    pub(super) default_nested: Option<bool>,
    pub(super) autoid_hash: Option<bool>,
}

const TYPES: &[Target] = &[Target::Struct, Target::Union, Target::Enum, Target::Bitmask];
const COMPOUND: &[Target] = &[Target::Struct, Target::Union];
const MEMBERS: &[Target] = &[Target::Member, Target::Case];

/// The annotations with an effect: where they belong, and that in words.
const KNOWN: &[(&str, &[Target], &str)] = &[
    ("key", &[Target::Member, Target::Case, Target::Discriminator], "members and discriminators"),
    ("id", MEMBERS, "members"),
    ("hashid", MEMBERS, "members"),
    ("optional", &[Target::Member], "members of structures"),
    ("must_understand", &[Target::Member, Target::Case, Target::Discriminator], "members"),
    ("external", MEMBERS, "members"),
    ("default", MEMBERS, "members"),
    ("default_literal", &[Target::Literal], "literals of enumerations"),
    ("value", &[Target::Literal], "literals of enumerations"),
    ("position", &[Target::Bit], "bits of bitmasks"),
    ("bit_bound", &[Target::Enum, Target::Bitmask], "enumerations and bitmasks"),
    ("final", TYPES, "types"),
    ("appendable", TYPES, "types"),
    ("mutable", TYPES, "types"),
    ("extensibility", TYPES, "types"),
    ("nested", TYPES, "types"),
    ("topic", COMPOUND, "structures and unions"),
    ("default_nested", &[Target::Module], "modules"),
    ("autoid", &[Target::Module, Target::Struct, Target::Union], "modules and types"),
];

/// Annotations without an effect on data.
const SILENT: &[&str] = &["range", "min", "max", "unit", "verbatim", "ignore_literal_names"];

/// Annotations of the standards that have no effect here, and why.
const IGNORED: &[(&str, &str)] = &[
    ("try_construct", "a sample with a member that can't be made is refused"),
    ("data_representation", "the policy of the reader and the writer selects the representation"),
    ("service", "interfaces are not compiled"),
    ("oneway", "interfaces are not compiled"),
    ("ami", "interfaces are not compiled"),
];

impl<'a> Annotations<'a> {
    fn flag(annotation: &Annotation, resolver: &Resolver<'_>, scope: ScopeId) -> Option<bool> {
        match annotation.parameters.as_slice() {
            [] => Some(true),
            [(name, value)] if name.as_ref().is_none_or(|name| name.text == "value") => {
                match resolver.evaluate(scope, value, None) {
                    Ok(Value::Boolean(value)) => Some(value),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

/// Returns the one parameter of an annotation.
fn only(annotation: &Annotation) -> Option<&Expression> {
    match annotation.parameters.as_slice() {
        [(name, value)] if name.as_ref().is_none_or(|name| name.text == "value") => Some(value),
        _ => None,
    }
}

/// Returns the word that is the one parameter.
fn word(annotation: &Annotation) -> Option<&str> {
    match &only(annotation)?.kind {
        ExpressionKind::Name(name) if !name.is_absolute && name.parts.len() == 1 => Some(&name.parts[0].text),
        _ => None,
    }
}

impl Resolver<'_> {
    /// Reads the annotations of a definition.
    pub(super) fn annotations<'a>(
        &mut self,
        scope: ScopeId,
        list: &'a [Annotation],
        target: Target,
    ) -> Annotations<'a> {
        let mut own = Annotations::default();
        for (index, annotation) in list.iter().enumerate() {
            let Annotation { name, place, .. } = annotation;
            let name = name.strip_prefix("::").unwrap_or(name);
            if self.declared_annotations.contains(name) || SILENT.contains(&name) {
                continue;
            }
            if let Some((_, reason)) = IGNORED.iter().find(|(known, _)| *known == name) {
                self.notice(*place, IdlNotice::AnnotationIgnored { name: name.to_owned(), reason });
                continue;
            }
            if name == "non_serialized" {
                let (what, remedy) = ("`@non_serialized`".to_owned(), "remove the member from the type");
                self.fault(*place, IdlFault::Unsupported { what, remedy });
                continue;
            }
            let Some((_, targets, belongs)) = KNOWN.iter().find(|(known, ..)| *known == name) else {
                let known = KNOWN.iter().map(|(known, ..)| *known).chain(SILENT.iter().copied());
                let fault = IdlFault::AnnotationUnknown { name: name.to_owned(), nearest: nearest(name, known) };
                self.fault(*place, fault);
                continue;
            };
            if !targets.contains(&target) {
                let fault = IdlFault::AnnotationMisplaced { name: name.to_owned(), target: target.word(), belongs };
                self.fault(*place, fault);
                continue;
            }
            if list[..index].iter().any(|before| before.name == annotation.name) {
                self.fault(*place, IdlFault::AnnotationTwice { name: name.to_owned() });
                continue;
            }
            if let Err(fault) = self.annotation(scope, annotation, name, target, &mut own) {
                self.fault(*place, fault);
            }
        }
        own
    }

    fn annotation<'a>(
        &mut self,
        scope: ScopeId,
        annotation: &'a Annotation,
        name: &'a str,
        target: Target,
        own: &mut Annotations<'a>,
    ) -> Result<(), IdlFault> {
        let place = annotation.place;
        let wrong = |expected, example| IdlFault::AnnotationArgument { name: name.to_owned(), expected, example };
        let no_flag = |example| wrong("has no parameter, or TRUE or FALSE", example);
        let flag = |example| Annotations::flag(annotation, self, scope).ok_or(no_flag(example));
        match name {
            "key" => own.key = flag("@key")?.then_some(place),
            "optional" => own.optional = flag("@optional")?.then_some(place),
            "must_understand" => own.must_understand = flag("@must_understand")?,
            "external" => own.external = flag("@external")?,
            "nested" => own.nested = Some(flag("@nested(FALSE)")?),
            "default_nested" => own.default_nested = Some(flag("@default_nested(TRUE)")?),
            "default_literal" => own.default_literal = flag("@default_literal")?.then_some(place),
            // Its parameters, a name and a platform, have no effect.
            "topic" => own.nested = Some(false),
            "default" => own.default = Some(only(annotation).ok_or(wrong("has a value", "@default(1)"))?),
            "value" => own.value = Some(only(annotation).ok_or(wrong("has a value", "@value(1)"))?),
            "position" => own.position = Some(only(annotation).ok_or(wrong("has a number", "@position(1)"))?),
            "bit_bound" => own.bit_bound = Some(only(annotation).ok_or(wrong("has a number", "@bit_bound(8)"))?),
            "id" => {
                let value = only(annotation).map(|value| self.evaluate(scope, value, None));
                match value {
                    Some(Ok(Value::Integer(id))) if u32::try_from(id).is_ok() => own.id = Some((id as u32, place)),
                    _ => return Err(wrong("has a number from 0 to 268435454", "@id(1)")),
                }
            }
            "hashid" => {
                let value = only(annotation).map(|value| self.evaluate(scope, value, None));
                match (annotation.parameters.len(), value) {
                    (0, _) => own.hash_id = Some((String::new(), place)),
                    (_, Some(Ok(Value::Text(text)))) => own.hash_id = Some((text, place)),
                    _ => return Err(wrong("has a text or no parameter", "@hashid(\"name\")")),
                }
            }
            "autoid" => {
                own.autoid_hash = Some(match (annotation.parameters.len(), word(annotation)) {
                    (0, _) | (_, Some("HASH")) => true,
                    (_, Some("SEQUENTIAL")) => false,
                    _ => return Err(wrong("has one of SEQUENTIAL and HASH", "@autoid(HASH)")),
                });
            }
            _ => {
                let extensibility = match (name, word(annotation)) {
                    ("final", None) | ("extensibility", Some("FINAL")) => Extensibility::Final,
                    ("appendable", None) | ("extensibility", Some("APPENDABLE")) => Extensibility::Appendable,
                    ("mutable", None) | ("extensibility", Some("MUTABLE")) => Extensibility::Mutable,
                    ("extensibility", _) => {
                        return Err(wrong("has one of FINAL, APPENDABLE and MUTABLE", "@extensibility(FINAL)"));
                    }
                    _ => return Err(wrong("has no parameter", "@extensibility(FINAL)")),
                };
                if let Some((_, first, _)) = own.extensibility {
                    let (first, second) = (first.to_owned(), name.to_owned());
                    return Err(IdlFault::AnnotationsExclude { first, second });
                }
                own.extensibility = Some((extensibility, name, place));
                if matches!(target, Target::Enum | Target::Bitmask) && extensibility != Extensibility::Final {
                    let reason = "enumerations and bitmasks have one encoding";
                    self.notice(place, IdlNotice::AnnotationIgnored { name: name.to_owned(), reason });
                }
            }
        }
        Ok(())
    }
}
