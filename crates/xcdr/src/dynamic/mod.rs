//! Data whose type is known at run time only, for tools: decoding, encoding, printing, JSON.
mod decode;
mod encode;
mod fields;
mod json;
mod pick;
mod value;

pub use fields::{FieldFault, FieldPathError, FieldSet};
pub use json::JsonError;
pub use pick::FieldValue;
pub use value::DynamicValue;

use crate::dds_type::{SampleFormat, check_extensibility};
use crate::decoder::CdrDecoder;
use crate::description::TypeDescription;
use crate::encoder::{CdrEncoder, EncodeKind};
use crate::error::{CdrReadError, CdrWriteError};
use crate::format::{ByteOrder, XcdrVersion};
use crate::key::{KeyHash, key_size_max};
use decode::DynamicDecoder;

/// Encodes and decodes samples of a type that is described at run time.
///
/// The description may come from another participant: see [`TypeObjects`](crate::TypeObjects).
/// Decoding is bounded by the sample, whatever the description says.
#[derive(Clone, Debug)]
pub struct DynamicType {
    description: TypeDescription,
    /// Whether key hashes are made with MD5.
    digest: bool,
}

impl DynamicType {
    /// Makes the type of a description.
    pub fn new(description: TypeDescription) -> DynamicType {
        let digest = key_size_max(&description).is_none();
        DynamicType { description, digest }
    }

    /// Returns the description.
    pub fn description(&self) -> &TypeDescription {
        &self.description
    }

    /// Decodes a sample with its header. Members that the writer's type lacks have the value zero.
    ///
    /// # Errors
    /// [`CdrReadError`] if the bytes are no sample of the type.
    pub fn decode_sample(&self, sample: &[u8]) -> Result<DynamicValue, CdrReadError> {
        self.decode(sample, false)
    }

    /// Decodes a key with its header. The value has the members of the key only.
    ///
    /// # Errors
    /// As [`DynamicType::decode_sample`].
    pub fn decode_key_sample(&self, sample: &[u8]) -> Result<DynamicValue, CdrReadError> {
        if !self.description.is_keyed() {
            return Ok(DynamicValue::Struct(Vec::new()));
        }
        self.decode(sample, true)
    }

    fn decode(&self, sample: &[u8], key: bool) -> Result<DynamicValue, CdrReadError> {
        let (mut from, encapsulation) = CdrDecoder::with_header(sample)?;
        check_extensibility(&from, encapsulation, self.description.extensibility())?;
        let mut decoder = DynamicDecoder::new(&self.description, sample.len());
        let value = decoder.decode(&self.description.root, &mut from, key)?;
        from.finish()?;
        Ok(value)
    }

    /// Encodes a sample with its header, padded to a multiple of four bytes.
    ///
    /// # Errors
    /// [`CdrWriteError`] if the value is not of the type.
    pub fn encode_sample(&self, value: &DynamicValue, format: SampleFormat) -> Result<Vec<u8>, CdrWriteError> {
        let mut to = format.encoder(self.description.extensibility());
        encode::encode(&self.description, &self.description.root, value, &mut to, false)?;
        Ok(to.finish_sample())
    }

    /// Encodes the key of a value with a header. The value may lack other members.
    ///
    /// # Errors
    /// As [`DynamicType::encode_sample`].
    pub fn encode_key_sample(&self, value: &DynamicValue, format: SampleFormat) -> Result<Vec<u8>, CdrWriteError> {
        let mut to = format.encoder(self.description.extensibility()).kind(EncodeKind::Key);
        if self.description.is_keyed() {
            encode::encode(&self.description, &self.description.root, value, &mut to, true)?;
        } else {
            to.structure(self.description.extensibility(), |_| Ok(()))?;
        }
        Ok(to.finish_sample())
    }

    /// Returns the hash of a value's key.
    ///
    /// # Errors
    /// As [`DynamicType::encode_sample`].
    pub fn key_hash(&self, value: &DynamicValue) -> Result<KeyHash, CdrWriteError> {
        if !self.description.is_keyed() {
            return Ok(KeyHash::NONE);
        }
        let mut to = CdrEncoder::new(XcdrVersion::Xcdr2, ByteOrder::Big).kind(EncodeKind::KeyHash);
        encode::encode(&self.description, &self.description.root, value, &mut to, true)?;
        Ok(KeyHash::of_bytes(&to.finish(), self.digest))
    }

    /// Makes a value from JSON in the form of [`DynamicValue::to_json`].
    ///
    /// # Errors
    /// [`JsonError`] with the member and the type that was expected.
    pub fn from_json(&self, json: &serde_json::Value) -> Result<DynamicValue, JsonError> {
        json::from_json(&self.description, &self.description.root, json)
    }
}
