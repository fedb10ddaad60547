//! The provider: the profiles of several sources, and the sets of policies that follow from them.
use super::error::{ERRORS_MAX, Place, ProfileError, ProfileErrors, ProfileProblem, shorten};
use super::read::{Base, Declared, Entry, SOURCE_BYTES_MAX, Settings, nearest_profile, read};
use super::set::{EntityKind, ProfileSet, ProfileSets};
use super::text::{Format, SourceText};
use super::write::toml_value;
use super::{toml, xml};
use crate::error::DdsError;
use crate::policy::{PolicyId, example, fits};
use crate::qos::{
    DataReaderQos, DataWriterQos, DomainParticipantFactoryQos, DomainParticipantQos, PublisherQos, SubscriberQos,
    TopicQos,
};
use std::collections::{BTreeMap, BTreeSet};

/// The most profiles in a row that inherit from each other.
const INHERITED_MAX: usize = 32;

/// The most work of the check at loading, about one comparison of two characters each: a second.
const WORK_MAX: usize = 100_000_000;

/// A source of profiles: a name, which errors show, and the text.
#[derive(Clone, Copy, Debug)]
pub enum ProfileSource<'a> {
    /// OMG DDS-XML 1.0, building block QoS.
    Xml {
        /// The name, such as the path of a file.
        name: &'a str,
        /// The text, at most 1 MiB.
        text: &'a str,
    },
    /// The same structure as TOML.
    Toml {
        /// The name, such as the path of a file.
        name: &'a str,
        /// The text, at most 1 MiB.
        text: &'a str,
    },
}

/// Profiles by name, from one or more sources (ISO C++ PSM: `dds::core::QosProvider`).
///
/// A profile has the name `Library::Profile`. Each question names one, or `None` for the default
/// profile.
///
/// ```
/// use spindle_dds_core::qos::profile::QosProvider;
///
/// let text = r#"
///     [qos_library.Control.Strict.datawriter_qos]
///     reliability = { kind = "reliable", max_blocking_time = "1 s" }
/// "#;
/// let provider = QosProvider::from_toml("control.toml", text)?;
/// let qos = provider.datawriter_qos("Control::Strict", "Square").unwrap();
/// assert_eq!(qos.reliability.max_blocking_time.to_string(), "1 s");
/// # Ok::<(), spindle_dds_core::qos::profile::ProfileErrors>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct QosProvider {
    profiles: BTreeMap<String, Declared>,
    /// The default profile, with its place.
    default: Option<(String, Place)>,
}

/// An effective value of a field, with its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedValue {
    /// The policy, as its element is called.
    pub policy: &'static str,
    /// The field.
    pub field: &'static str,
    /// The value in the notation of TOML.
    pub value: String,
    /// The place that sets it; `None` for a default of the specification.
    pub place: Option<Place>,
}

/// The purpose of a set that is being made, and the profiles that were resolved for it.
struct Resolution<'a> {
    kind: EntityKind,
    topic: &'a str,
    /// The settings of profiles that are complete.
    done: BTreeMap<&'a str, Settings>,
    work: usize,
}

impl QosProvider {
    /// Reads profiles from DDS-XML.
    ///
    /// # Errors
    /// All errors of the text, each with its place.
    pub fn from_xml(name: &str, text: &str) -> Result<QosProvider, ProfileErrors> {
        QosProvider::from_sources(&[ProfileSource::Xml { name, text }])
    }

    /// Reads profiles from TOML.
    ///
    /// # Errors
    /// All errors of the text, each with its place.
    pub fn from_toml(name: &str, text: &str) -> Result<QosProvider, ProfileErrors> {
        QosProvider::from_sources(&[ProfileSource::Toml { name, text }])
    }

    /// Reads profiles from several sources. They may inherit from each other in any order.
    ///
    /// # Errors
    /// All errors of the sources, each with its place.
    pub fn from_sources(sources: &[ProfileSource<'_>]) -> Result<QosProvider, ProfileErrors> {
        let mut provider = QosProvider::default();
        provider.load(sources)?;
        Ok(provider)
    }

    /// Adds the profiles of more sources. They may inherit from those that are loaded.
    ///
    /// # Errors
    /// All errors of the sources, each with its place. The provider then stays as it was.
    pub fn load(&mut self, sources: &[ProfileSource<'_>]) -> Result<(), ProfileErrors> {
        let (mut declared, mut errors) = (Vec::new(), Vec::new());
        for source in sources {
            match read_source(source) {
                Ok(profiles) => declared.extend(profiles),
                Err(found) => errors.extend(found.0),
            }
        }
        let mut next = self.clone();
        let added: Vec<String> = declared.iter().map(|profile| profile.name.clone()).collect();
        for profile in declared {
            next.declare(profile, &mut errors);
        }
        if errors.is_empty() {
            next.link(&added, &mut errors);
        }
        if errors.is_empty() {
            next.check(&added, &mut errors);
        }
        errors.truncate(ERRORS_MAX);
        if !errors.is_empty() {
            return Err(ProfileErrors(errors));
        }
        *self = next;
        Ok(())
    }

    /// Returns the names of all profiles, sorted.
    pub fn profiles(&self) -> impl Iterator<Item = &str> {
        self.profiles.keys().map(String::as_str)
    }

    /// Returns the name of the default profile: the one with `is_default_qos`.
    pub fn default_profile(&self) -> Option<&str> {
        self.default.as_ref().map(|(name, _)| name.as_str())
    }

    /// Returns the policies of the factory.
    ///
    /// # Errors
    /// [`ProfileProblem::Unknown`] if there is no such profile, [`ProfileProblem::NoDefault`] if none is the default.
    pub fn factory_qos<'a>(
        &self,
        profile: impl Into<Option<&'a str>>,
    ) -> Result<DomainParticipantFactoryQos, ProfileError> {
        self.set(profile.into(), "")
    }

    /// Returns the policies of a participant.
    ///
    /// # Errors
    /// As [`QosProvider::factory_qos`].
    pub fn participant_qos<'a>(
        &self,
        profile: impl Into<Option<&'a str>>,
    ) -> Result<DomainParticipantQos, ProfileError> {
        self.set(profile.into(), "")
    }

    /// Returns the policies of a topic with this name.
    ///
    /// # Errors
    /// As [`QosProvider::datawriter_qos`].
    pub fn topic_qos<'a>(&self, profile: impl Into<Option<&'a str>>, topic: &str) -> Result<TopicQos, ProfileError> {
        self.set(profile.into(), topic)
    }

    /// Returns the policies of a publisher.
    ///
    /// # Errors
    /// As [`QosProvider::factory_qos`].
    pub fn publisher_qos<'a>(&self, profile: impl Into<Option<&'a str>>) -> Result<PublisherQos, ProfileError> {
        self.set(profile.into(), "")
    }

    /// Returns the policies of a subscriber.
    ///
    /// # Errors
    /// As [`QosProvider::factory_qos`].
    pub fn subscriber_qos<'a>(&self, profile: impl Into<Option<&'a str>>) -> Result<SubscriberQos, ProfileError> {
        self.set(profile.into(), "")
    }

    /// Returns the policies of a writer of a topic with this name.
    ///
    /// # Errors
    /// As [`QosProvider::factory_qos`], and [`ProfileProblem::Inconsistent`] if the topic matches filters of
    /// several profiles whose policies contradict each other only together.
    pub fn datawriter_qos<'a>(
        &self,
        profile: impl Into<Option<&'a str>>,
        topic: &str,
    ) -> Result<DataWriterQos, ProfileError> {
        self.set(profile.into(), topic)
    }

    /// Returns the policies of a reader of a topic with this name.
    ///
    /// # Errors
    /// As [`QosProvider::datawriter_qos`].
    pub fn datareader_qos<'a>(
        &self,
        profile: impl Into<Option<&'a str>>,
        topic: &str,
    ) -> Result<DataReaderQos, ProfileError> {
        self.set(profile.into(), topic)
    }

    /// Returns the policies of all kinds of entities, for a topic with this name.
    ///
    /// # Errors
    /// As [`QosProvider::datawriter_qos`].
    pub fn sets<'a>(&self, profile: impl Into<Option<&'a str>>, topic: &str) -> Result<ProfileSets, ProfileError> {
        let profile = profile.into();
        Ok(ProfileSets {
            factory: self.set(profile, topic)?,
            participant: self.set(profile, topic)?,
            topic: self.set(profile, topic)?,
            publisher: self.set(profile, topic)?,
            subscriber: self.set(profile, topic)?,
            datawriter: self.set(profile, topic)?,
            datareader: self.set(profile, topic)?,
        })
    }

    /// Returns each field of a kind of entity with its effective value, and the place that sets it.
    ///
    /// # Errors
    /// As [`QosProvider::datawriter_qos`].
    pub fn explain<'a>(
        &self,
        profile: impl Into<Option<&'a str>>,
        kind: EntityKind,
        topic: &str,
    ) -> Result<Vec<ExplainedValue>, ProfileError> {
        let profile = profile.into();
        let sets = self.sets(profile, topic)?;
        let settings = self.resolve(self.find(profile)?, &mut Resolution::new(kind, topic));
        let policies = sets.values().into_iter().filter(|(own, _)| *own == kind).flat_map(|(_, policies)| policies);
        let fields = policies.flat_map(|(policy, values)| values.into_iter().map(move |value| (policy, value)));
        let explained = fields.map(|(policy, (field, value))| ExplainedValue {
            policy,
            field: field.name,
            value: toml_value(&field, &value),
            place: settings.get(&(policy, field.name)).map(|setting| setting.place.clone()),
        });
        Ok(explained.collect())
    }

    fn declare(&mut self, profile: Declared, errors: &mut Vec<ProfileError>) {
        let mut twice = |name: String, place: &Place, first: &Place| {
            let problem = ProfileProblem::Duplicate { name, first: first.clone() };
            errors.push(ProfileError {
                place: Some(place.clone()),
                path: profile.name.clone(),
                problem: problem.into(),
            });
        };
        if profile.is_default {
            match &self.default {
                Some((_, first)) => twice("is_default_qos".to_owned(), &profile.place, first),
                None => self.default = Some((profile.name.clone(), profile.place.clone())),
            }
        }
        match self.profiles.get(&profile.name) {
            Some(first) => twice(profile.name.clone(), &profile.place, &first.place),
            None => {
                self.profiles.insert(profile.name.clone(), profile);
            }
        }
    }

    /// Checks that bases exist, and that no profile inherits from itself or through too many others.
    fn link(&self, added: &[String], errors: &mut Vec<ProfileError>) {
        for profile in added.iter().filter_map(|name| self.profiles.get(name)) {
            for base in profile.bases().filter(|base| !self.profiles.contains_key(&base.name)) {
                if errors.len() >= ERRORS_MAX {
                    return;
                }
                let problem = self.unknown(&base.name);
                errors.push(ProfileError {
                    place: Some(base.place.clone()),
                    path: profile.name.clone(),
                    problem: problem.into(),
                });
            }
        }
        let mut heights = BTreeMap::new();
        for profile in added.iter().filter_map(|name| self.profiles.get(name)) {
            if errors.is_empty()
                && let Err(error) = self.height(profile, &mut Vec::new(), &mut heights)
            {
                errors.push(error);
            }
        }
    }

    /// Returns the number of profiles in the longest row that begins with this one. The recursion ends at
    /// [`INHERITED_MAX`].
    fn height<'a>(
        &'a self,
        profile: &'a Declared,
        row: &mut Vec<&'a str>,
        heights: &mut BTreeMap<&'a str, usize>,
    ) -> Result<usize, ProfileError> {
        if let Some(height) = heights.get(profile.name.as_str()) {
            return Ok(*height);
        }
        row.push(&profile.name);
        let mut height = 1;
        for base in profile.bases() {
            let wrong = |problem: ProfileProblem| {
                Err(ProfileError {
                    place: Some(base.place.clone()),
                    path: profile.name.clone(),
                    problem: problem.into(),
                })
            };
            if let Some(start) = row.iter().position(|name| *name == base.name) {
                let through = row[start..].iter().chain([&base.name.as_str()]).map(ToString::to_string).collect();
                return wrong(ProfileProblem::Cycle { through });
            }
            let too_deep = ProfileProblem::TooDeep { most: INHERITED_MAX };
            if row.len() > INHERITED_MAX {
                return wrong(too_deep);
            }
            if let Some(inherited) = self.profiles.get(&base.name) {
                height = height.max(1 + self.height(inherited, row, heights)?);
            }
            if height > INHERITED_MAX + 1 {
                return wrong(too_deep);
            }
        }
        row.pop();
        heights.insert(&profile.name, height);
        Ok(height)
    }

    /// Checks the sets of profiles, for a topic of each filter.
    fn check(&self, added: &[String], errors: &mut Vec<ProfileError>) {
        let (mut work, mut checked) = (0, 0);
        for profile in added.iter().filter_map(|name| self.profiles.get(name)) {
            // The check of a profile without policies of a kind is that of its base.
            for kind in EntityKind::ALL.into_iter().filter(|kind| profile.entries.iter().any(|own| own.kind == *kind)) {
                let mut topics = BTreeSet::from([String::new()]);
                if kind.has_topic() {
                    work += self.collect_topics(profile, kind, &mut topics);
                }
                for topic in &topics {
                    checked += 1;
                    if work > WORK_MAX {
                        let problem = ProfileProblem::TooMuch { checked };
                        let path = format!("{}/{kind}", profile.name);
                        return errors.push(ProfileError {
                            place: Some(profile.place.clone()),
                            path,
                            problem: problem.into(),
                        });
                    }
                    let mut resolution = Resolution::new(kind, topic);
                    let found = self.check_one(profile, &mut resolution);
                    work += resolution.work;
                    // A base is checked by itself, and a derived profile may have the same contradiction.
                    if let Err(error) = found
                        && !errors.iter().any(|other| other.place == error.place)
                        && errors.len() < ERRORS_MAX
                    {
                        errors.push(error);
                    }
                }
            }
        }
    }

    /// Adds a topic for each filter of a profile and its bases. Returns the work.
    fn collect_topics(&self, profile: &Declared, kind: EntityKind, topics: &mut BTreeSet<String>) -> usize {
        let (mut waiting, mut seen, mut work) = (vec![profile], BTreeSet::new(), 0);
        while let Some(profile) = waiting.pop() {
            if !seen.insert(&profile.name) {
                continue;
            }
            work += 10;
            for entry in profile.entries.iter().filter(|entry| entry.kind == kind) {
                let filter = entry.filter.as_deref().unwrap_or("");
                work += 10 + filter.len();
                topics.insert(example(filter));
            }
            waiting.extend(profile.bases().filter_map(|base| self.profiles.get(&base.name)));
        }
        work
    }

    fn check_one<'a>(&'a self, profile: &'a Declared, resolution: &mut Resolution<'a>) -> Result<(), ProfileError> {
        match resolution.kind {
            EntityKind::Factory => self.make::<DomainParticipantFactoryQos>(profile, resolution).map(drop),
            EntityKind::Participant => self.make::<DomainParticipantQos>(profile, resolution).map(drop),
            EntityKind::Topic => self.make::<TopicQos>(profile, resolution).map(drop),
            EntityKind::Publisher => self.make::<PublisherQos>(profile, resolution).map(drop),
            EntityKind::Subscriber => self.make::<SubscriberQos>(profile, resolution).map(drop),
            EntityKind::DataWriter => self.make::<DataWriterQos>(profile, resolution).map(drop),
            EntityKind::DataReader => self.make::<DataReaderQos>(profile, resolution).map(drop),
        }
    }

    fn find(&self, profile: Option<&str>) -> Result<&Declared, ProfileError> {
        let wrong =
            |problem: ProfileProblem| ProfileError { place: None, path: String::new(), problem: problem.into() };
        let name = match (profile, &self.default) {
            (Some(name), _) => name,
            (None, Some((name, _))) => name,
            (None, None) => return Err(wrong(ProfileProblem::NoDefault)),
        };
        self.profiles.get(name).ok_or_else(|| wrong(self.unknown(name)))
    }

    fn unknown(&self, name: &str) -> ProfileProblem {
        let nearest = nearest_profile(name, self.profiles.keys());
        ProfileProblem::Unknown {
            what: "profile",
            name: shorten(name),
            nearest,
            known: self.profiles.keys().take(ERRORS_MAX).cloned().collect(),
        }
    }

    fn set<T: ProfileSet>(&self, profile: Option<&str>, topic: &str) -> Result<T, ProfileError> {
        self.make(self.find(profile)?, &mut Resolution::new(T::KIND, topic))
    }

    /// Makes a set, and checks it.
    fn make<'a, T: ProfileSet>(
        &'a self,
        profile: &'a Declared,
        resolution: &mut Resolution<'a>,
    ) -> Result<T, ProfileError> {
        let settings = self.resolve(profile, resolution);
        let mut set = T::default();
        set.apply(|policy, field| settings.get(&(policy, field)).map(|setting| &setting.value));
        set.check_consistent().map_err(|error| inconsistent(profile, resolution, &settings, error))?;
        Ok(set)
    }

    /// Returns the settings of a profile: those of its base, then those of the base of the entry, then
    /// those of the entry.
    fn resolve<'a>(&'a self, profile: &'a Declared, resolution: &mut Resolution<'a>) -> Settings {
        if let Some(settings) = resolution.done.get(profile.name.as_str()) {
            resolution.work += settings.len();
            return settings.clone();
        }
        let mut settings = self.inherited(profile.base.as_ref(), resolution);
        if let Some(entry) = select(profile, resolution) {
            settings.extend(self.inherited(entry.base.as_ref(), resolution));
            settings.extend(entry.settings.clone());
        }
        resolution.work += 10 * (10 + settings.len());
        resolution.done.insert(&profile.name, settings.clone());
        settings
    }

    fn inherited<'a>(&'a self, base: Option<&'a Base>, resolution: &mut Resolution<'a>) -> Settings {
        let base = base.and_then(|base| self.profiles.get(&base.name));
        base.map(|base| self.resolve(base, resolution)).unwrap_or_default()
    }
}

impl<'a> Resolution<'a> {
    fn new(kind: EntityKind, topic: &'a str) -> Resolution<'a> {
        Resolution { kind, topic, done: BTreeMap::new(), work: 0 }
    }
}

impl Declared {
    fn bases(&self) -> impl Iterator<Item = &Base> {
        self.base.iter().chain(self.entries.iter().filter_map(|entry| entry.base.as_ref()))
    }
}

/// Returns the entry for a topic: the first whose filter matches, or the one without a filter
/// (DDS-XML 7.3.2.4.3).
fn select<'a>(profile: &'a Declared, resolution: &mut Resolution<'_>) -> Option<&'a Entry> {
    let mut unfiltered = None;
    for entry in profile.entries.iter().filter(|entry| entry.kind == resolution.kind) {
        match &entry.filter {
            None => unfiltered = Some(entry),
            Some(filter) => {
                resolution.work += (10 + filter.len()) * (10 + resolution.topic.len());
                if fits(filter, resolution.topic) {
                    return Some(entry);
                }
            }
        }
    }
    unfiltered
}

/// Places a contradiction at a value of one of its policies.
fn inconsistent(
    profile: &Declared,
    resolution: &mut Resolution<'_>,
    settings: &Settings,
    error: DdsError,
) -> ProfileError {
    let policies = match &error {
        DdsError::InconsistentPolicy(conflict) => {
            let other = conflict.other.as_ref().map(|(policy, _)| *policy);
            [Some(conflict.policy), other].into_iter().flatten().collect()
        }
        _ => Vec::new(),
    };
    let setting = |policy: PolicyId| {
        let name = element(policy);
        settings.iter().find(|((policy, _), _)| *policy == name).map(|(_, setting)| (name, setting.place.clone()))
    };
    let path = format!("{}/{}", profile.name, resolution.kind);
    let topic = Some(resolution.topic.to_owned()).filter(|topic| !topic.is_empty());
    let (path, place) = match policies.into_iter().find_map(setting) {
        Some((policy, place)) => (format!("{path}/{policy}"), place),
        None => {
            let place = select(profile, resolution).map_or(&profile.place, |entry| &entry.place);
            (path, place.clone())
        }
    };
    ProfileError { place: Some(place), path, problem: Box::new(ProfileProblem::Inconsistent { topic, error }) }
}

/// Returns the name of a policy's element.
fn element(policy: PolicyId) -> String {
    match policy {
        PolicyId::DataRepresentation => "representation".to_owned(),
        PolicyId::TypeConsistencyEnforcement => "type_consistency".to_owned(),
        policy => policy.name().to_lowercase(),
    }
}

fn read_source(source: &ProfileSource<'_>) -> Result<Vec<Declared>, ProfileErrors> {
    let (format, name, text) = match *source {
        ProfileSource::Xml { name, text } => (Format::Xml, name, text),
        ProfileSource::Toml { name, text } => (Format::Toml, name, text),
    };
    if text.len() > SOURCE_BYTES_MAX {
        let place = SourceText::new(format, name, "").place(0);
        let problem = ProfileProblem::TooLong { bytes: text.len(), most: SOURCE_BYTES_MAX };
        return Err(ProfileErrors(vec![ProfileError {
            place: Some(place),
            path: String::new(),
            problem: problem.into(),
        }]));
    }
    let mut source = SourceText::new(format, name, text);
    let root = match format {
        Format::Xml => xml::parse(&mut source),
        Format::Toml => Some(toml::parse(&mut source)),
    };
    let profiles = root.map(|root| read(&mut source, &root)).unwrap_or_default();
    source.into_errors().map_or(Ok(profiles), Err)
}
