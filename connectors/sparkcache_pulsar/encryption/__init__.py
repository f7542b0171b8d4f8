"""Decrypt payloads that producers have encrypted.

    options           -> Decryption   paths of private keys, or else    options.py
    encrypted key     -> data key     by RSA-OAEP or by ECIES           private_keys.py
    encrypted payload -> payload      by AES-GCM, in the same buffer    decrypting.py
    not decrypted     -> a column     what is needed to decrypt it      column.py

A producer compresses a payload, then encrypts it with a data key that it uses for
hours. It encrypts the data key for each permitted reader. Private keys are read from
files by the process that decrypts: nothing that identifies or holds rows contains one.

Source: MessageCryptoBc of Apache Pulsar's client.
"""
