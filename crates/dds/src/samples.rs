//! Samples that were read or taken, as loans (DDS 2.2.2.5.3.20).
use crate::payload::Payload;
use crate::reader_core::ReaderCore;
use crate::sync::now;
use spindle_dds_core::DdsError;
use spindle_dds_core::cache::{LoanId, Select, Selection};
use spindle_dds_core::instance::{Sample as CoreSample, SampleData, SampleInfo};
use spindle_xcdr::{DdsType, LendError, Plain, decode_key_sample, decode_sample, lend_sample};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// Samples that were read or taken. Dropping them returns the loan.
pub struct Samples<T> {
    samples: Vec<Sample<T>>,
    loan: Option<(Arc<ReaderCore>, LoanId)>,
}

/// A sample with the information about it. Clones share the bytes.
pub struct Sample<T> {
    inner: CoreSample<Payload>,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Sample<T> {
    fn clone(&self) -> Sample<T> {
        Sample { inner: self.inner.clone(), of: PhantomData }
    }
}

impl<T> fmt::Debug for Sample<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sample").field("info", &self.inner.info).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Samples<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.samples).finish()
    }
}

impl<T> Samples<T> {
    /// Reads or takes samples of a reader. No data are no samples.
    ///
    /// # Errors
    /// How the participant ended, if there is none.
    pub(crate) fn of(reader: &Arc<ReaderCore>, select: &Select<'_>, takes: bool) -> Result<Samples<T>, DdsError> {
        match reader.select(select, takes, now()) {
            Ok(Selection { samples, loan }) => {
                let samples = samples.into_iter().map(|inner| Sample { inner, of: PhantomData }).collect();
                Ok(Samples { samples, loan: Some((Arc::clone(reader), loan)) })
            }
            Err(DdsError::NoData) => reader.ended().map_or(Ok(Samples { samples: Vec::new(), loan: None }), Err),
            Err(error) => Err(error),
        }
    }

    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Returns whether there is none: NO_DATA.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Returns the samples.
    pub fn iter(&self) -> std::slice::Iter<'_, Sample<T>> {
        self.samples.iter()
    }

    /// Returns a sample, by its index.
    pub fn get(&self, index: usize) -> Option<&Sample<T>> {
        self.samples.get(index)
    }
}

impl<'a, T> IntoIterator for &'a Samples<T> {
    type Item = &'a Sample<T>;
    type IntoIter = std::slice::Iter<'a, Sample<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T> IntoIterator for Samples<T> {
    type Item = Sample<T>;
    type IntoIter = std::vec::IntoIter<Sample<T>>;

    /// Returns the loan, and keeps the bytes.
    fn into_iter(mut self) -> Self::IntoIter {
        std::mem::take(&mut self.samples).into_iter()
    }
}

impl<T> Drop for Samples<T> {
    fn drop(&mut self) {
        if let Some((reader, loan)) = self.loan.take() {
            reader.return_loan(loan);
        }
    }
}

impl<T> Sample<T> {
    /// Returns the information about it.
    pub fn info(&self) -> &SampleInfo {
        &self.inner.info
    }

    /// Returns the serialised sample with its header; `None` if it announces a change of state only.
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.inner.data {
            SampleData::Value(bytes) => Some(bytes),
            SampleData::Key(_) => None,
        }
    }

    /// Returns the serialised key of a sample that announces a change of state. It is empty without a key.
    pub(crate) fn key_bytes(&self) -> Option<&[u8]> {
        match &self.inner.data {
            SampleData::Value(_) => None,
            SampleData::Key(bytes) => Some(bytes),
        }
    }
}

impl<T: DdsType> Sample<T> {
    /// Decodes the data; `None` if the sample announces a change of state only (`valid_data` is false).
    ///
    /// # Errors
    /// `Error` if the bytes are no sample of the type.
    pub fn data(&self) -> Result<Option<T>, DdsError> {
        self.bytes().map(|bytes| decode_sample(bytes).map_err(undecodable)).transpose()
    }

    /// Decodes the key. Other members have their defaults.
    ///
    /// # Errors
    /// As [`Sample::data`].
    pub fn key(&self) -> Result<T, DdsError> {
        match &self.inner.data {
            SampleData::Value(bytes) => decode_sample(bytes),
            SampleData::Key(bytes) if bytes.is_empty() => return Ok(T::missing()),
            SampleData::Key(bytes) => decode_key_sample(bytes),
        }
        .map_err(undecodable)
    }
}

impl<T: Plain> Sample<T> {
    /// Lends the data in place, without decoding; `None` if the sample announces a change of state only.
    ///
    /// # Errors
    /// [`LendError`]; the sample can still be decoded.
    pub fn lend(&self) -> Result<Option<&T>, LendError> {
        self.bytes().map(lend_sample).transpose()
    }
}

fn undecodable(error: spindle_xcdr::CdrReadError) -> DdsError {
    DdsError::Error(format!("the sample is not of the type of the reader: {error}"))
}
