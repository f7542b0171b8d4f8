package sparkcache.golden;

import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.Provider;
import java.util.Map;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.EncryptionKeyInfo;
import org.bouncycastle.asn1.ASN1Encodable;
import org.bouncycastle.asn1.x9.ECNamedCurveTable;
import org.bouncycastle.asn1.x9.X9ECParameters;
import org.bouncycastle.jce.provider.BouncyCastleProvider;
import org.bouncycastle.jce.spec.ECNamedCurveGenParameterSpec;
import org.bouncycastle.jce.spec.ECParameterSpec;
import org.bouncycastle.openssl.jcajce.JcaMiscPEMGenerator;
import org.bouncycastle.openssl.jcajce.JcaPEMWriter;
import org.bouncycastle.openssl.jcajce.JcaPKCS8Generator;
import org.bouncycastle.util.io.pem.PemObject;

/** Key pairs made for this run and for nothing else; the private keys are kept so that a reader can be tested with them. */
record Keys(Map<String, String> open, Map<String, String> secret) implements CryptoKeyReader {
    private static final Provider PROVIDER = new BouncyCastleProvider();

    /** Writes `test-only-NAME-public.pem` and `test-only-NAME-private.pem`; the messages know the keys as `golden-NAME`. */
    static Keys make(Path folder) throws Exception {
        Files.createDirectories(folder);
        KeyPair rsa = generate("RSA", generator -> generator.initialize(2048));
        KeyPair ec = generate("ECDSA", generator -> generator.initialize(new ECNamedCurveGenParameterSpec("P-256")));
        // As Pulsar's documentation makes them: `openssl ecparam -name secp521r1 -genkey -param_enc explicit`.
        X9ECParameters curve = ECNamedCurveTable.getByName("secp521r1");
        KeyPair explicit = generate("ECDSA", generator -> generator.initialize(new ECParameterSpec(
                curve.getCurve(), curve.getG(), curve.getN(), curve.getH(), curve.getSeed())));
        // The explicit parameters again, in front of the key, where openssl puts them.
        String parameters = pem(new PemObject("EC PARAMETERS", ((ASN1Encodable) curve).toASN1Primitive().getEncoded()));
        Keys keys = new Keys(
                Map.of("golden-rsa", pem(rsa.getPublic()), "golden-ec", pem(ec.getPublic()),
                        "golden-ec-explicit", pem(explicit.getPublic())),
                Map.of("golden-rsa", pem(new JcaPKCS8Generator(rsa.getPrivate(), null)),
                        "golden-ec", pem(new JcaPKCS8Generator(ec.getPrivate(), null)),
                        "golden-ec-explicit", parameters + pem(new JcaMiscPEMGenerator(explicit.getPrivate()))));
        for (String name : keys.open.keySet()) {
            String file = name.replace("golden-", "test-only-");
            Files.writeString(folder.resolve(file + "-public.pem"), keys.open.get(name));
            Files.writeString(folder.resolve(file + "-private.pem"), keys.secret.get(name));
        }
        return keys;
    }

    @Override
    public EncryptionKeyInfo getPublicKey(String name, Map<String, String> metadata) {
        return new EncryptionKeyInfo(open.get(name).getBytes(StandardCharsets.US_ASCII), Map.of("made-for", "golden objects"));
    }

    @Override
    public EncryptionKeyInfo getPrivateKey(String name, Map<String, String> metadata) {
        return new EncryptionKeyInfo(secret.get(name).getBytes(StandardCharsets.US_ASCII), metadata);
    }

    private static KeyPair generate(String algorithm, Setting setting) throws Exception {
        KeyPairGenerator generator = KeyPairGenerator.getInstance(algorithm, PROVIDER);
        setting.apply(generator);
        return generator.generateKeyPair();
    }

    private static String pem(Object object) throws Exception {
        StringWriter text = new StringWriter();
        try (JcaPEMWriter writer = new JcaPEMWriter(text)) {
            writer.writeObject(object);
        }
        return text.toString();
    }

    private interface Setting {
        void apply(KeyPairGenerator generator) throws Exception;
    }
}
