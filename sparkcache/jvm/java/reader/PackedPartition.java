package sparkcache;

/**
 * A partition as it travels; `body` is empty if it comes with those of other partitions, and `home`
 * if the partition may be read anywhere. The number of rows is -1 if only reading tells.
 */
record PackedPartition(int index, byte[] body, long rows, String home) implements PartitionAtHome {}
