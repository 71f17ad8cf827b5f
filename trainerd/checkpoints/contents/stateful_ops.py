"""TensorFlow's ops that TensorFlow marks as stateful, and what their state is.

An op that is stateful, or takes a reference, changes what it takes, or keeps something in its kernel, unless a table
here says otherwise. So an op that is new, or a user's own, is reported and not overlooked.

TensorFlow has no public way to ask for the definition of an op by its name; tests/tensorflow/test_internals.py names
the versions for which this one works, and tests/tensorflow/test_unsaved_state.py checks that the tables name real ops.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

# They keep a counter in their kernel. Those of tf.random.Generator (StatefulUniform and the like) keep it in a
# variable, and the stateless ones have none.
RANDOM = frozenset(
    """
    AllCandidateSampler FixedUnigramCandidateSampler LearnedUnigramCandidateSampler LogUniformCandidateSampler
    Multinomial NonDeterministicInts ParameterizedTruncatedNormal RandomCrop RandomGamma RandomPoisson RandomPoissonV2
    RandomShuffle RandomStandardNormal RandomUniform RandomUniformInt SampleDistortedBoundingBox
    SampleDistortedBoundingBoxV2 ThreadUnsafeUnigramCandidateSampler TruncatedNormal UniformCandidateSampler
    """.split()
)
PYTHON = frozenset({"EagerPyFunc", "PyFunc"})
# They do not change what they take, and keep nothing that a later step finds, each group for its own reason.
_HARMLESS_KINDS = {
    "they read variables": """
        DisableCopyOnRead IsVariableInitialized ReadVariableOp ReadVariableXlaSplitND ResourceGather ResourceGatherNd
        VarIsInitializedOp VariableShape _ReadVariablesOp
        """,
    "they read tables, queues, accumulators, barriers and staging areas": """
        AccumulatorNumAccumulated BarrierIncompleteSize BarrierReadySize LookupTableExport LookupTableExportV2
        LookupTableFind LookupTableFindV2 LookupTableSize LookupTableSizeV2 MapIncompleteSize MapPeek MapSize
        OrderedMapIncompleteSize OrderedMapPeek OrderedMapSize QueueIsClosed QueueIsClosedV2 QueueSize QueueSizeV2
        ResourceAccumulatorNumAccumulated StagePeek StageSize
        """,
    "they read iterators and file readers without moving them": """
        IteratorGetDevice IteratorToStringHandle ReaderNumRecordsProduced ReaderNumRecordsProducedV2
        ReaderNumWorkUnitsCompleted ReaderNumWorkUnitsCompletedV2 ReaderSerializeState ReaderSerializeStateV2
        SerializeIterator
        """,
    "they pass a handle or a reference on; what takes it is judged": """
        IsResourceHandleRefCounting MakeWeakResourceHandle RefEnter RefExit RefIdentity RefMerge RefNextIteration
        RefSelect RefSwitch
        """,
    "they call functions, which are judged": """
        Case If RemoteCall RiscWhile StatefulPartitionedCall While XlaIf XlaLaunch XlaWhile _If _While
        """,
    "they describe a dataset: what reads it begins it; what its functions change is judged": """
        CSVDataset CSVDatasetV2 CacheDatasetV2 DatasetToSingleElement FixedLengthRecordDataset
        FixedLengthRecordDatasetV2 GeneratorDataset GroupByReducerDataset LMDBDataset ListDataset LoadDataset
        MatchingFilesDataset RandomDataset RangeDataset ReduceDataset SparseTensorSliceDataset SqlDataset
        TFRecordDataset TFRecordDatasetV2 TensorDataset TensorSliceDataset TextLineDataset ThreadPoolDataset
        """,
    "they check, print, or write for TensorBoard: no step reads that": """
        Assert CheckNumerics CheckNumericsV2 CloseSummaryWriter CreateSummaryDbWriter CreateSummaryFileWriter
        DebugIdentityV2 DebugIdentityV3 DumpTensor FlushSummaryWriter ImportEvent Print PrintV2 WriteAudioSummary
        WriteGraphSummary WriteHistogramSummary WriteImageSummary WriteRawProtoSummary WriteScalarSummary WriteSummary
        """,
    "they exchange tensors between workers, devices and graphs; the handle only orders them": """
        AllToAll CollectiveAllToAllV2 CollectiveAllToAllV3 CollectiveAssignGroupV2 CollectiveBcastRecv
        CollectiveBcastRecvV2 CollectiveBcastSend CollectiveBcastSendV2 CollectiveGather CollectiveGatherV2
        CollectivePermute CollectiveReduce CollectiveReduceScatterV2 CollectiveReduceV2 CollectiveReduceV3
        CrossReplicaSum NcclAllReduce NcclBroadcast NcclReduce Recv Send _HostRecv _HostSend _Recv _Send
        """,
    "a lock is free between two steps": "ConsumeMutexLock MutexLock",
    "they read files": "LoadAndRemapMatrix Restore RestoreSlice RestoreV2",
    "they read a clock or a setting, which no checkpoint could hold": """
        DeviceIndex GraphDefVersion IsTensorFloat32Enabled StatelessRandomGetAlg Timestamp
        """,
    "they compute; TensorFlow marks them for its own optimizer's sake": """
        CudnnRNN CudnnRNNBackprop CudnnRNNBackpropV2 CudnnRNNBackpropV3 CudnnRNNV2 CudnnRNNV3 DeepCopy
        DevicePlacementOp Empty GuaranteeConst SyncDevice XlaCallModule XlaDequantize _Arg _ParallelConcatStart _Retval
        """,
}
HARMLESS = frozenset(name for names in _HARMLESS_KINDS.values() for name in names.split())
# What they make ends with the step, or is made again by the next one: a step finds nothing there that another left.
TEMPORARY = frozenset(
    """
    AnonymousHashTable AnonymousIterator AnonymousIteratorV2 AnonymousIteratorV3 AnonymousMemoryCache
    AnonymousMultiDeviceIterator AnonymousMultiDeviceIteratorV3 AnonymousMutableDenseHashTable
    AnonymousMutableHashTable AnonymousMutableHashTableOfTensors AnonymousRandomSeedGenerator AnonymousSeedGenerator
    DummyIterationCounter DummyMemoryCache DummySeedGenerator Stack StackV2 TemporaryVariable TensorArray TensorArrayV2
    TensorArrayV3
    """.split()
)
# A dataset that begins again draws a new seed from the handle that it takes, if this attribute is set.
DRAWS_SEEDS_IF = {
    "RandomDatasetV2": "rerandomize_each_iteration",
    "ShuffleAndRepeatDatasetV2": "reshuffle_each_iteration",
    "ShuffleDatasetV3": "reshuffle_each_iteration",
}
# A file that a step writes is state if a step reads files too.
WRITES_FILES = frozenset(
    "DatasetToTFRecord MergeV2Checkpoints Save SaveDataset SaveDatasetV2 SaveSlices SaveV2 WriteFile".split()
)
READS_FILES = frozenset(
    """
    FixedLengthRecordDataset FixedLengthRecordDatasetV2 LoadDataset MatchingFiles MatchingFilesDataset ReadFile Restore
    RestoreSlice RestoreV2 TFRecordDataset TFRecordDatasetV2 TextLineDataset
    """.split()
)
VARIABLES = frozenset({"VarHandleOp", "Variable", "VariableV2"})


def definition_of(op: str) -> Any:
    """Return the OpDef that is registered for a kind of op; None if there is none, as for a function's name."""
    return op_def_registry.get(op)


def handles_among(node: Any, definition: Any) -> list[str]:
    """Return the inputs of a NodeDef that are resources or references, in their order.

    Args:
      node: the NodeDef.
      definition: the OpDef of its kind.
    """
    given = [name for name in node.input if not name.startswith("^")]  # those are control inputs
    kinds = [
        argument.is_ref or kind == tf.resource.as_datatype_enum
        for argument in definition.input_arg
        for kind in _types(node, argument)
    ]
    return [name for name, is_handle in zip(given, kinds, strict=False) if is_handle]


def makes_handle(definition: Any) -> bool:
    """Return whether an op gives a resource or a reference."""
    return any(argument.is_ref or argument.type == tf.resource.as_datatype_enum for argument in definition.output_arg)


def _types(node: Any, argument: Any) -> list[int]:
    """Return the types of the inputs that a NodeDef has for one argument of its OpDef."""
    if argument.type_list_attr:
        return list(node.attr[argument.type_list_attr].list.type)
    kind = argument.type or node.attr[argument.type_attr].type
    return [kind] * (node.attr[argument.number_attr].i if argument.number_attr else 1)
